"""Facts about GPU platforms as data.

A `Profile` says what a kind of GPU platform calls its GPU resources, how it taints and labels its
nodes, who schedules what, and which pods are its own components. Several profiles merge into one.
What all platforms share, such as the meaning of a variable, is code in `rules.gpu`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from rules.base.caching import BoundedCache
from rules.base.patterns import matches_any
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
            _union((*(f.annotations for f in fractions), *(s.annotations for s in schedulers)))
        )
        self.scheduler_names = frozenset(_union((s.name, *s.alternatives) for s in schedulers))
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


def merge_profiles(chosen: Iterable[Profile], known: Iterable[Profile]) -> Profile:
    """The facts of all `chosen` profiles together, aware of the resources of all `known`.

    Raises ValueError if two chosen profiles claim one resource: whose scheduler, taint and
    label should a pod get?
    """
    chosen, known = tuple(chosen), tuple(known)
    active = _disjoint_resources(chosen)
    # The first of several matching patterns decides, so the chosen profiles come first.
    everything: dict[str, Resource] = {}
    for profile in (*chosen, *known):
        for name, resource in profile.resources.items():
            everything.setdefault(name, resource)
    variables = {v.name: v for p in (*known, *chosen) for v in p.visible_devices.values()}
    labels = _labels(chosen)
    for key, values in _labels(known).items():
        labels.setdefault(key, values)
    return Profile(
        name="+".join(p.name for p in chosen),
        resources=everything,
        active=active,
        taints=tuple(t for p in chosen for t in p.taints),
        affinities=tuple(a for p in chosen for a in p.affinities),
        schedulers=tuple(s for p in chosen for s in p.schedulers),
        components=(
            *(c for p in chosen for c in p.components),
            # Whoever may create pods in kube-system owns the cluster, and every platform installs
            # components there.
            *(c for p in known for c in p.components if c.namespaces == (SYSTEM_NAMESPACE,)),
        ),
        node_labels=labels,
        node_modes={k: m for p in (*known, *chosen) for k, m in p.node_modes.items()},
        runtime_classes=_union(p.runtime_classes for p in (*known, *chosen)),
        visible_devices=variables,
        alternative_variables=_union(p.alternative_variables for p in (*known, *chosen)),
        chosen_alternatives=_union(p.alternative_variables for p in chosen),
        injected_references=tuple(r for p in chosen for r in p.injected_references),
        fractions=tuple(f for p in chosen for f in p.fractions),
        limit_quotas=_union(p.limit_quotas for p in chosen),
    )


def _labels(profiles: Iterable[Profile]) -> dict[str, tuple[str, ...]]:
    """The labels of all `profiles`; clouds share some of them, each with values of its own."""
    labels: dict[str, tuple[str, ...]] = {}
    for profile in profiles:
        for key, values in profile.node_labels.items():
            before = labels.get(key, values)
            labels[key] = _union((before, values)) if before and values else ()
    return labels


def _disjoint_resources(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """The resources of all `profiles`, each described by one of them only."""
    owners: dict[str, str] = {}
    for profile in profiles:
        for name in profile.resources:
            if name in owners:
                raise ValueError(
                    f"profiles {owners[name]!r} and {profile.name!r} both describe the "
                    f"resource {name!r}: choose one of them"
                )
            owners[name] = profile.name
    return tuple(owners)


def _union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
