"""Facts about GPU platforms as data.

A `Profile` says what a kind of GPU platform calls its GPU resources, how it taints and labels its
nodes, who schedules what, and which pods are its own components. `merging` makes one of several.
What all platforms share, such as the meaning of a variable, is code in `rules.gpu`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from rules.base.caching import BoundedCache
from rules.base.words import matches_any
from rules.profile.pattern_index import PatternIndex
from rules.profile.records import (
    Component,
    Fraction,
    InjectedReference,
    NodeAffinity,
    Resource,
    Scheduler,
    Taint,
    VisibleDevices,
)

SYSTEM_NAMESPACE = "kube-system"


class Profile:
    """The facts about one GPU platform, or about several merged; nothing changes them.

    - `resources`: all GPU resources that any profile knows, so that a container which asks for
      one keeps its GPU even without that profile; `active`: those of the chosen profiles.
    - `node_labels`: labels of GPU nodes, each with the values that mean one; none means any.
    - `node_modes`: labels that tell how a node offers its GPUs: by value, the resources that such
      a node offers of those in the table; none means that this is not known.
    - `visible_devices`: the variables by which container runtimes learn which cards to hand out,
      by name or pattern.
    - `alternative_variables`: variables that may act as NVIDIA_VISIBLE_DEVICES does;
      `chosen_alternatives`: those of the chosen profiles.
    - `limit_quotas`: resources whose quotas the platform enforces by keys such as
      `limits.nvidia.com/gpu`.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        *,
        resources: Mapping[str, Resource] = MappingProxyType({}),
        active: tuple[str, ...] = (),
        taints: tuple[Taint, ...] = (),
        affinities: tuple[NodeAffinity, ...] = (),
        schedulers: tuple[Scheduler, ...] = (),
        components: tuple[Component, ...] = (),
        node_labels: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        node_modes: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({}),
        runtime_classes: tuple[str, ...] = (),
        visible_devices: Mapping[str, VisibleDevices] = MappingProxyType({}),
        alternative_variables: tuple[str, ...] = (),
        chosen_alternatives: tuple[str, ...] = (),
        injected_references: tuple[InjectedReference, ...] = (),
        fractions: tuple[Fraction, ...] = (),
        limit_quotas: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.description = description
        self.resources = resources
        self.active = active
        self.taints = taints
        self.affinities = affinities
        self.schedulers = schedulers
        self.components = components
        self.node_labels = node_labels
        self.node_modes = node_modes
        self.runtime_classes = runtime_classes
        self.visible_devices = visible_devices
        self.alternative_variables = alternative_variables
        self.chosen_alternatives = frozenset(chosen_alternatives)
        self.injected_references = injected_references
        self.fractions = fractions
        self.limit_quotas = limit_quotas
        # A pod with one of these annotations asks for a GPU, or for the scheduler of GPUs.
        self.request_annotations = frozenset(
            union((*(f.annotations for f in fractions), *(s.annotations for s in schedulers)))
        )
        self.scheduler_names = frozenset(union((s.name, *s.alternatives) for s in schedulers))
        # Filled by `traits.extraction`, which meets the same names in every pod.
        self.variable_traits: BoundedCache[str, int] = BoundedCache()
        self._components: BoundedCache[str, tuple[Component, ...]] = BoundedCache()
        self._resources = PatternIndex(resources)
        self._labels = PatternIndex(node_labels)
        self._exclusive_vendors = {r.vendor for r in resources.values() if r.exclusive}
        self._visible_devices = PatternIndex(visible_devices)

    def components_in(self, namespace: str) -> tuple[Component, ...]:
        """The components that may live in `namespace`; in a tenant's there are none."""
        found = self._components.get(namespace)
        if found is None:
            found = tuple(c for c in self.components if matches_any(c.namespaces, namespace))
            self._components.store(namespace, found)
        return found

    def resource(self, name: str) -> Resource | None:
        """The GPU resource that `name` is, or None if it is nothing known."""
        return self._resources.find(name)

    def visible_variable(self, name: str) -> VisibleDevices | None:
        """What is known about the variable `name`, or None if no container runtime reads it."""
        return self._visible_devices.find(name)

    def visible_variables(self, names: Collection[str]) -> dict[str, VisibleDevices]:
        """What is known about those of the variables `names` that some container runtime reads."""
        return self._visible_devices.find_all(names)

    def is_exclusive(self, vendors: tuple[str, ...]) -> bool:
        """Whether the cards of `vendors` are in machines without cards of another vendor."""
        return bool(vendors) and self._exclusive_vendors.issuperset(vendors)

    def obeys(self, fraction: Fraction, annotations: Mapping[str, Any], scheduler: str) -> bool:
        """Whether `annotations` ask for a `fraction`, and `scheduler` is one that gives it."""
        if annotations.keys().isdisjoint(fraction.annotations):
            return False
        givers = [
            s for s in self.schedulers if not set(s.annotations).isdisjoint(fraction.annotations)
        ]
        return not givers or any(scheduler in (s.name, *s.alternatives) for s in givers)

    def label_values(self, key: str) -> tuple[str, ...] | None:
        """The values of the label `key` that mean a GPU node, any if empty; None if none does."""
        return self._labels.find(key)


def union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The items of all `groups`, each once, in the order in which they first appear."""
    return tuple(dict.fromkeys(item for group in groups for item in group))
