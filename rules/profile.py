"""Facts about GPU estates as data.

A `Profile` says what a kind of estate calls its GPU resources, how it taints and labels
its nodes, who schedules what, and which pods are the estate's own components. Several
profiles merge into one. What every estate shares, such as the meaning of a variable,
is code in `devices` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, TypeVar

from rules.patterns import matches, matches_any

T = TypeVar("T")

SYSTEM_NAMESPACE = "kube-system"
# Names of resources come from tenants: what is remembered of them must stay bounded.
_REMEMBERED = 4096
_LONGEST_NAME = 253 + 1 + 63


class Resource(NamedTuple):
    """One extended resource by which an estate hands out GPUs or shares of them.

    `sharing` is how much of a card it stands for: the whole card, a hardware partition
    (MIG), or a share that software divides. `unit` is what a quantity of 1 means.
    `companions` are resources of another name that belong in the same container.
    """

    name: str
    vendor: str
    sharing: Literal["whole", "partition", "share"] = "whole"
    unit: str = "device"
    companions: tuple[str, ...] = ()


class Taint(NamedTuple):
    """A taint that the estate puts on the nodes which offer `resources`."""

    resources: tuple[str, ...]
    key: str
    value: str | None = None
    effect: str = "NoSchedule"


class NodeAffinity(NamedTuple):
    """The label by which pods that ask for `resources` should be drawn to nodes.

    Without `values` the label must merely exist. `required` forbids every other node,
    which also forbids a node that an autoscaler has yet to create and label.
    """

    resources: tuple[str, ...]
    key: str
    values: tuple[str, ...] = ()
    required: bool = False


class Scheduler(NamedTuple):
    """The scheduler that must place pods which ask for `resources` or carry `annotations`.

    `alternatives` are other schedulers that can place them as well.
    """

    name: str
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


class Component(NamedTuple):
    """Pods of the estate itself: device plugins, exporters, validators.

    Known by namespace *and* service account, which tenants cannot choose freely. At
    admission the creator counts too: the DaemonSet controller or one of `creators`.
    """

    namespaces: tuple[str, ...]
    service_accounts: tuple[str, ...]
    creators: tuple[str, ...] = ()


class InjectedReference(NamedTuple):
    """A reference that the estate's own webhook writes into `variable`, to be left alone.

    The ConfigMap's name begins as the pod annotation `annotation` says and ends with a number.
    """

    variable: str
    key: str
    annotation: str


class Fraction(NamedTuple):
    """Pod annotations that ask for part of a GPU; `target` names the container, else the first."""

    annotations: tuple[str, ...]
    target: str | None = None


class Profile:
    """One estate's facts, or several merged; nothing changes them.

    `active` are the resources of the chosen profiles; `resources` are all that are known,
    because a resource must not lose its GPU for the lack of a profile. `limit_quotas` are
    resources whose quotas the estate itself enforces by keys that begin with `limits.`.
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
        runtime_classes: tuple[str, ...] = (),
        alternative_variables: tuple[str, ...] = (),
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
        self.runtime_classes = runtime_classes
        self.alternative_variables = alternative_variables
        self.injected_references = injected_references
        self.fractions = fractions
        self.limit_quotas = limit_quotas
        # By any of these annotations a pod asks for a GPU, or for the scheduler of GPUs.
        self.asking_annotations = frozenset(
            _union((*(f.annotations for f in fractions), *(s.annotations for s in schedulers)))
        )
        self.scheduler_names = frozenset(_union((s.name, *s.alternatives) for s in schedulers))
        # Kept by `traits`, which meets the same names in every pod.
        self.variable_traits: dict[str, int] = {}
        self._components: dict[str, tuple[Component, ...]] = {}
        self._resources = _Names(resources)
        self._labels = _Names(node_labels)

    def components_in(self, namespace: str) -> tuple[Component, ...]:
        """The components that may live in `namespace`; in a tenant's there are none."""
        found = self._components.get(namespace)
        if found is None:
            found = tuple(c for c in self.components if matches_any(c.namespaces, namespace))
            if len(self._components) < _REMEMBERED and len(namespace) <= _LONGEST_NAME:
                self._components[namespace] = found
        return found

    def resource(self, name: str) -> Resource | None:
        """The GPU resource that `name` is, or None if it is nothing known."""
        return self._resources.find(name)

    def label_values(self, key: str) -> tuple[str, ...] | None:
        """The values of the label `key` that mean a GPU node, any if empty; None if none does."""
        return self._labels.find(key)


class _Names(Generic[T]):
    """Facts by name or by pattern; the name itself goes before a pattern, that before a later."""

    def __init__(self, facts: Mapping[str, T]) -> None:
        self._patterns = [(name, fact) for name, fact in facts.items() if "*" in name]
        self._found: dict[str, T | None] = dict(facts)

    def find(self, name: str) -> T | None:
        """The fact about `name`, or None."""
        if name in self._found:
            return self._found[name]
        fact = next((fact for pattern, fact in self._patterns if matches(pattern, name)), None)
        # Names come from tenants, so what is remembered must stay bounded.
        if len(self._found) < _REMEMBERED and len(name) <= _LONGEST_NAME:
            self._found[name] = fact
        return fact


def merged(chosen: Iterable[Profile], known: Iterable[Profile]) -> Profile:
    """The facts of all `chosen` profiles together, aware of the resources of all `known`.

    Raises ValueError if two chosen profiles claim one resource: whose scheduler, taint and
    label should a pod get?
    """
    chosen, known = tuple(chosen), tuple(known)
    active = _disjoint(chosen)
    # Of several patterns that fit the first decides, so what was chosen stands first.
    everything: dict[str, Resource] = {}
    for profile in (*chosen, *known):
        for name, resource in profile.resources.items():
            everything.setdefault(name, resource)
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
            # Whoever may create pods there owns the cluster, and every estate installs there.
            *(c for p in known for c in p.components if c.namespaces == (SYSTEM_NAMESPACE,)),
        ),
        node_labels=labels,
        runtime_classes=_union(p.runtime_classes for p in (*known, *chosen)),
        alternative_variables=_union(p.alternative_variables for p in (*known, *chosen)),
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


def _disjoint(profiles: Iterable[Profile]) -> tuple[str, ...]:
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
