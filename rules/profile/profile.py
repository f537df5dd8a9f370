"""Facts about GPU platforms as data.

A `Profile` says what a kind of GPU platform calls its GPU resources, how it taints and labels its
nodes, who schedules what, and which pods are its own components. `merge_profiles` makes one of
several. What all platforms share, such as the meaning of a variable, is code in `rules.gpu`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from rules.base.caching import BoundedCache
from rules.base.json_values import as_text
from rules.base.text_matching import has_placeholder, matches, matches_any


class Resource(NamedTuple):
    """One extended resource by which a GPU platform hands out GPUs or shares of them.

    `sharing` is how much of a card it stands for: the whole card, a hardware partition
    (MIG), or a share that software divides. `unit` is what a quantity of 1 means, and amounts are
    multiples of `step`. `companions` are resources of another name that belong in the same
    container. `maximum` is the largest amount that a card has, 0 if there is none. `exclusive` says
    that nodes which offer the resource have cards of no other vendor.
    """

    name: str
    vendor: str
    sharing: Literal["whole", "partition", "share"] = "whole"
    unit: str = "device"
    companions: tuple[str, ...] = ()
    maximum: int = 0
    exclusive: bool = False
    step: int = 1


class VisibleDevices(NamedTuple):
    """A variable by which a container runtime learns which cards a container gets.

    `name` may contain one `*`. `maker` is what messages call the cards; `vendors` are the vendors
    of the resources whose cards the variable names. What a value means:

    - an empty value hides every card, unless `empty_grants`: then it gives all of them;
    - one of `overrides` at any position hides every card;
    - `driver_only` before any `all` means the libraries without a card;
    - a value of `hides` alone hides every card.

    `hiding_value` is the value to write in order to hide every card; None if none is known.
    `from_annotation` says that the maker tells users to refer to the annotation in which its
    scheduler records the chosen cards. The annotation is named after the requested resource.
    """

    name: str
    maker: str
    vendors: tuple[str, ...]
    hides: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    driver_only: str = ""
    hiding_value: str | None = None
    from_annotation: bool = False
    empty_grants: bool = False


class Taint(NamedTuple):
    """A taint that the platform puts on the nodes which offer `resources`.

    `tolerated_for` are the resources for which the platform itself adds the toleration to a pod.
    """

    resources: tuple[str, ...]
    key: str
    value: str | None = None
    effect: str = "NoSchedule"
    tolerated_for: tuple[str, ...] = ()


class NodeAffinity(NamedTuple):
    """The label by which pods that ask for `resources` should be drawn to nodes.

    Without `values` the label must merely exist. `required` forbids every other node,
    which also forbids a node that an autoscaler has yet to create and label. `enforce` requires
    the label whatever else the pod says about its nodes.
    """

    resources: tuple[str, ...]
    key: str
    values: tuple[str, ...] = ()
    required: bool = False
    enforce: bool = False

    @property
    def label(self) -> str:
        """The label as a message names it: `key=value`, or `key` alone if any value will do."""
        return f"{self.key}={'|'.join(self.values)}" if self.values else self.key


class Scheduler(NamedTuple):
    """The scheduler that must place pods which ask for `resources` or carry `annotations`.

    `alternatives` are other schedulers that can place them as well. `required` says that the pod
    itself must name the scheduler: no webhook of the platform does. `label` is the pod label that
    must be `true`, or the annotations ask for nothing.
    """

    name: str
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    required: bool = False
    label: str = ""


class Component(NamedTuple):
    """Pods of the GPU platform itself: device plugins, exporters, validators.

    Known by namespace *and* service account, which tenants cannot choose freely. At
    admission the creator counts too: one of `creators`, by default the DaemonSet controller.
    If there are `images`, each container must have one of them. If there are `programs`, it must
    run the program of its image or one of these, and no other code. If there are `rules`, only
    these are not run, unless the policy says that no user may suppress them.
    """

    namespaces: tuple[str, ...]
    service_accounts: tuple[str, ...]
    creators: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


class InjectedReference(NamedTuple):
    """A reference that the platform's own webhook writes into `variable`; rules ignore it.

    The ConfigMap's name begins as the pod annotation `annotation` says and ends with a number.
    """

    variable: str
    key: str
    annotation: str


class Fraction(NamedTuple):
    """Pod annotations that ask for part of a GPU; `target` names the container, else the first.

    The value of `portion` is a part of a card, that of `memory` an amount of memory, and that of
    `cards` the number of cards; `mps: "true"` asks for MPS on the cards of the part. The scheduler
    refuses the resources in `excludes` beside them.
    `resource` is the resource of the nodes that have such parts: their taints and labels hold for
    the pod as if it requested this resource. `resource_annotations` are annotations with a value
    that says that the pod itself runs on such a node; one of them is enough, and without any, it is
    not known, unless one of `remote_annotations` says that another pod gets the part. The value of
    `vendor_annotation` names another `vendor` of the card.
    """

    annotations: tuple[str, ...]
    target: str | None = None
    portion: str = ""
    memory: str = ""
    cards: str = ""
    mps: str = ""
    excludes: tuple[str, ...] = ()
    resource: str = ""
    resource_annotations: Mapping[str, str] = MappingProxyType({})
    remote_annotations: Mapping[str, str] = MappingProxyType({})
    vendor: str = "nvidia"
    vendor_annotation: str = ""

    def resource_for(self, annotations: Mapping[str, Any]) -> str:
        """Return `resource` if a pod with `annotations` needs nodes that have it; else empty."""
        named = as_text(annotations.get(self.vendor_annotation)).lower()
        needed = self.resource_annotations.items()
        is_there = any(annotations.get(key) == value for key, value in needed)
        is_needed = named in {"", self.vendor} and (is_there or not needed)
        return self.resource if is_needed else ""


class ShareRequest(NamedTuple):
    """A pod annotation that asks a scheduler for part of a GPU.

    If `is_amount`, only a positive number does; if there is a `label`, only beside this label with
    the value `true`. The value of `vendor_annotation` names another `vendor` of the card. `local`
    and `remote` are the `resource_annotations` and `remote_annotations` of the fraction.
    """

    annotation: str
    is_amount: bool
    label: str
    vendor: str
    vendor_annotation: str
    local: tuple[tuple[str, str], ...] = ()
    remote: tuple[tuple[str, str], ...] = ()

    def is_remote(self, annotations: Mapping[str, Any]) -> bool:
        """Return whether a pod with `annotations` says that another pod gets the part."""

        def is_one_of(known: tuple[tuple[str, str], ...]) -> bool:
            return any(annotations.get(key) == value for key, value in known)

        return is_one_of(self.remote) and not is_one_of(self.local)

    def vendor_for(self, annotations: Mapping[str, Any]) -> str:
        """Return the vendor of the card of a pod with `annotations`, in small letters."""
        return as_text(annotations.get(self.vendor_annotation)).lower() or self.vendor


POSITIVE_NUMBER_PATTERN = r"^[0-9.]*[1-9][0-9.]*([eE][+-]?[0-9]+)?$"
SHARE_LABEL_VALUE = "true"
T = TypeVar("T")


class PatternIndex(Generic[T]):
    """Facts by name or pattern. An exact name wins over patterns, an earlier pattern over later."""

    def __init__(self, facts: Mapping[str, T]) -> None:
        self._found: _FoundByName[T] = _FoundByName(facts)

    def find(self, name: str) -> T | None:
        """The fact about `name`, or None."""
        return self._found[name]

    def find_all(self, names: Collection[str]) -> dict[str, T]:
        """The facts about those of `names` that have one, in the same order.

        It takes a fraction of the time of `find` for each, if all names were met before.
        """
        facts = map(self._found.__getitem__, names)
        return {name: fact for name, fact in zip(names, facts, strict=True) if fact is not None}


class _FoundByName(BoundedCache[str, T | None]):
    """A cache of the facts found by the names that were met, most of which tenants choose."""

    def __init__(self, facts: Mapping[str, T]) -> None:
        super().__init__()
        self._facts = facts
        self._patterns = [(name, fact) for name, fact in facts.items() if "*" in name]
        # One comparison with all of them tells most other names apart.
        self._beginnings = tuple({pattern.partition("*")[0] for pattern, _ in self._patterns})

    def __missing__(self, name: str) -> T | None:
        """The fact about a new `name`."""
        fact = self._facts.get(name)
        if fact is None and name.startswith(self._beginnings):
            fact = next((fact for pattern, fact in self._patterns if matches(pattern, name)), None)
        return self.store(name, fact)


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
    - `share_requests`: the annotations by which the schedulers of any profile give parts of GPUs,
      by the name of the scheduler.
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
        share_requests: Mapping[str, tuple[ShareRequest, ...]] = MappingProxyType({}),
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
        self.share_requests = share_requests
        self.limit_quotas = limit_quotas
        # A pod with one of these annotations asks for a GPU, or for the scheduler of GPUs.
        self.request_annotations = frozenset(
            union_in_order(
                (
                    *(f.annotations for f in fractions),
                    *((f.mps,) for f in fractions if f.mps),
                    *(s.annotations for s in schedulers),
                )
            )
        )
        self.scheduler_names = frozenset(
            union_in_order((s.name, *s.alternatives) for s in schedulers)
        )
        # Filled by `engine.traits`, which meets the same names in every pod.
        self.variable_traits: BoundedCache[str, int] = BoundedCache()
        # Filled by `gpu.resource_names`: the resource that each unknown name may stand for.
        self.nearest_names: BoundedCache[str, str] = BoundedCache()
        self._components: BoundedCache[str, tuple[Component, ...]] = BoundedCache()
        self._resources = PatternIndex(resources)
        self._name_by_lower_case = _by_lower_case(resources)
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

    def resource_name_in_any_case(self, name: str) -> str | None:
        """The first name of a resource that differs from `name` in nothing but upper case."""
        return self._name_by_lower_case.get(name.lower())

    def with_resources(self, more: Mapping[str, Resource]) -> "Profile":
        """Return the same profile that also knows the resources `more`."""
        from copy import copy  # noqa: PLC0415  # few inventories have such resources

        profile = copy(self)
        profile.resources = {**self.resources, **more}
        profile._resources = PatternIndex(profile.resources)  # noqa: SLF001  # its own
        profile._name_by_lower_case = _by_lower_case(profile.resources)  # noqa: SLF001
        profile.nearest_names = BoundedCache()
        return profile

    def visible_variable(self, name: str) -> VisibleDevices | None:
        """Return the facts about the variable `name`, or None if no container runtime reads it."""
        return self._visible_devices.find(name)

    def visible_variables(self, names: Collection[str]) -> dict[str, VisibleDevices]:
        """Return the facts about those of `names` that some container runtime reads."""
        return self._visible_devices.find_all(names)

    def is_exclusive(self, vendors: tuple[str, ...]) -> bool:
        """Return whether the cards of `vendors` are in machines without cards of another vendor."""
        return bool(vendors) and self._exclusive_vendors.issuperset(vendors)

    def grants_fraction(
        self, fraction: Fraction, annotations: Mapping[str, Any], scheduler: str
    ) -> bool:
        """Return whether `annotations` ask for a `fraction` that `scheduler` gives."""
        if annotations.keys().isdisjoint(fraction.annotations):
            return False
        givers = [
            s for s in self.schedulers if not set(s.annotations).isdisjoint(fraction.annotations)
        ]
        return not givers or any(scheduler in (s.name, *s.alternatives) for s in givers)

    def gives_share(
        self,
        annotations: Mapping[str, Any],
        labels: Mapping[str, Any],
        scheduler: str,
        *,
        has_placeholders: bool,
    ) -> bool:
        """Return whether `scheduler` gives a part of a GPU to such a pod, in any profile.

        With `has_placeholders`, one may stand for an amount.
        """
        found = self.share_request(
            annotations, labels, scheduler, has_placeholders=has_placeholders
        )
        return found is not None

    def share_request(
        self,
        annotations: Mapping[str, Any],
        labels: Mapping[str, Any],
        scheduler: str,
        *,
        has_placeholders: bool,
    ) -> ShareRequest | None:
        """Return the annotation for which `gives_share` is true; None if it is not."""

        def is_amount(value: Any) -> bool:
            text = as_text(value)
            is_number = re.fullmatch(POSITIVE_NUMBER_PATTERN, text) is not None
            return is_number or (has_placeholders and has_placeholder(text))

        return next(
            (
                request
                for request in self.share_requests.get(scheduler, ())
                if request.annotation in annotations
                and not (request.label and labels.get(request.label) != SHARE_LABEL_VALUE)
                and (not request.is_amount or is_amount(annotations[request.annotation]))
            ),
            None,
        )

    def label_values(self, key: str) -> tuple[str, ...] | None:
        """The values of the label `key` that mean a GPU node, any if empty; None if none does."""
        return self._labels.find(key)

    def is_gpu_label(self, key: str, value: str | None = None) -> bool:
        """Return whether nodes with the label `key` (and `value`, if given) are GPU nodes."""
        values = self.label_values(key)
        return values is not None and (value is None or not values or matches_any(values, value))


def union_in_order(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The items of all `groups`, each once, in the order in which they first appear."""
    return tuple(dict.fromkeys(item for group in groups for item in group))


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
    labels = _merged_labels(chosen)
    for key, values in _merged_labels(known).items():
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
            # Users who may create pods in kube-system own the cluster, and every platform installs
            # components there.
            *(c for p in known for c in p.components if c.namespaces == (SYSTEM_NAMESPACE,)),
        ),
        node_labels=labels,
        node_modes={k: m for p in (*known, *chosen) for k, m in p.node_modes.items()},
        runtime_classes=union_in_order(p.runtime_classes for p in (*known, *chosen)),
        visible_devices=variables,
        alternative_variables=union_in_order(p.alternative_variables for p in (*known, *chosen)),
        chosen_alternatives=union_in_order(p.alternative_variables for p in chosen),
        injected_references=tuple(r for p in chosen for r in p.injected_references),
        fractions=tuple(f for p in chosen for f in p.fractions),
        share_requests=_share_requests((*chosen, *known)),
        limit_quotas=union_in_order(p.limit_quotas for p in chosen),
    )


def _by_lower_case(names: Iterable[str]) -> dict[str, str]:
    """The first of `names` for each form in lower case."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return found


def _share_requests(profiles: Iterable[Profile]) -> dict[str, tuple[ShareRequest, ...]]:
    """The annotations of fractions, by the name of each scheduler that gives them."""
    found: dict[str, tuple[ShareRequest, ...]] = {}
    for profile in profiles:
        fractions = {key: each for each in profile.fractions for key in each.annotations}
        amounts = {
            key for fraction in profile.fractions for key in (fraction.portion, fraction.memory)
        }
        for scheduler in profile.schedulers:
            given = tuple(
                ShareRequest(
                    key,
                    is_amount=key in amounts,
                    label=scheduler.label,
                    vendor=fractions[key].vendor,
                    vendor_annotation=fractions[key].vendor_annotation,
                    local=tuple(fractions[key].resource_annotations.items()),
                    remote=tuple(fractions[key].remote_annotations.items()),
                )
                for key in scheduler.annotations
                if key in fractions
            )
            for name in (scheduler.name, *scheduler.alternatives) if given else ():
                found[name] = tuple(dict.fromkeys((*found.get(name, ()), *given)))
    return found


def _merged_labels(profiles: Iterable[Profile]) -> dict[str, tuple[str, ...]]:
    """The labels of all `profiles`; clouds share some of them, each with values of its own."""
    labels: dict[str, tuple[str, ...]] = {}
    for profile in profiles:
        for key, values in profile.node_labels.items():
            before = labels.get(key, values)
            labels[key] = union_in_order((before, values)) if before and values else ()
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
