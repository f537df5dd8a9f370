"""The built-in profiles for which a cluster has evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from cluster.init.facts import InitFacts, Node
from policies.profiles import built_in_profiles
from rules.base.text_matching import matches, matches_any

# Labels of Kubernetes itself, which each cloud and each administrator fills with values of its own.
_COMMON_LABELS = (
    *("node.kubernetes.io/", "beta.kubernetes.io/", "node-role.kubernetes.io/"),
    "kubernetes.io/",
)
_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
_ANY_CLASS = "dra"  # the profile of all device classes, of which some are no GPUs
_MAX_NAMED = 3


class Choice(NamedTuple):
    """Profiles with the evidence for each.

    `chosen` are certain. `possible` have evidence that may mean something else. What a profile
    contains by `extends` is left out.
    """

    chosen: dict[str, str]
    possible: dict[str, str]


class _Seen(NamedTuple):
    """The evidence of nodes and drivers: see `_offered` and `_labelled`."""

    offered: dict[str, str]
    labelled: dict[tuple[str, str], list[Node]]


def choose(facts: InitFacts) -> Choice:
    """The profiles for which there is evidence; none is certain in a cluster without GPUs."""
    certain: dict[str, str] = {}
    possible: dict[str, str] = {}
    seen = _Seen(_offered(facts), _labelled(facts.nodes))
    for name in built_in_profiles():
        proofs, labels = [*_proofs(name, facts, seen)], _label_proofs(name, facts, seen)
        if proofs or labels.are_usual:
            certain[name] = "; ".join([*proofs, *labels.texts][:_MAX_NAMED]) + labels.share
        elif found := [*labels.texts, *_hints(name, facts, seen)]:
            possible[name] = "; ".join(found[:_MAX_NAMED]) + labels.share
    contained = {parent for name in certain for parent in ancestors(name)}
    return Choice(
        {name: why for name, why in certain.items() if name not in contained},
        {name: why for name, why in possible.items() if name not in contained},
    )


def ancestors(name: str) -> set[str]:
    """The built-in profiles that the built-in profile `name` extends."""
    parents = set(built_in_profiles()[name].get("extends", ()))
    return parents.union(*map(ancestors, parents))


def nodes_named(nodes: Iterable[Node]) -> str:
    """The number of nodes, and the name of the first, for a comment."""
    named = [node.name for node in nodes]
    if len(named) <= _MAX_NAMED:
        return f"node{'s' * (len(named) > 1)} {', '.join(named)}"
    return f"{len(named)} nodes, such as {named[0]}"


def _proofs(name: str, facts: InitFacts, seen: _Seen) -> Iterator[str]:
    """Yield the evidence that only this profile explains."""
    raw = built_in_profiles()[name]
    for resource, why in seen.offered.items():
        if name != _ANY_CLASS and _profiles_describing(resource) == [name]:
            yield why
    for workload in facts.daemon_sets:
        accounts = [a for a in _accounts(raw, workload.namespace) if a != "default"]
        if matches_any(tuple(accounts), workload.service_account):
            yield f"DaemonSet {workload.namespace}/{workload.name}"
    if not raw.get("resources"):
        yield from _schedulers(raw, facts)


class _LabelProofs(NamedTuple):
    """Labels that only one profile explains.

    `share` says how many nodes have one, unless all have. They are usual if half of them have.
    """

    texts: tuple[str, ...] = ()
    share: str = ""
    are_usual: bool = False


def _label_proofs(name: str, facts: InitFacts, seen: _Seen) -> _LabelProofs:
    """The labels of nodes that only this profile explains.

    One node that an administrator has labelled, or moved from elsewhere, does not make a cluster
    another platform: the profile's taints and affinities would be wrong for all other nodes.
    """
    found = [*_labels(built_in_profiles()[name], seen, lambda key: _explains(name, key))]
    if not found:
        return _LabelProofs()
    labelled = {node.name for _, nodes in found for node in nodes}
    known = tuple(pattern for each in (name, *ancestors(name)) for pattern in _resources(each))
    alike = labelled | {
        node.name
        for node in facts.nodes
        if any(matches_any(known, resource) for resource in node.resources)
    }
    share = f": {len(labelled):,} of {len(alike):,} nodes" if labelled < alike else ""
    usual = 2 * len(labelled) >= len(alike)
    return _LabelProofs(tuple(text for text, _ in found), share, usual)


def _resources(name: str) -> list[str]:
    return [*built_in_profiles()[name].get("resources", ())]


def _hints(name: str, facts: InitFacts, seen: _Seen) -> Iterator[str]:
    """Yield the evidence that may have another reason."""
    raw = built_in_profiles()[name]
    for resource, why in seen.offered.items():
        if name in (owners := _profiles_describing(resource)) and (
            len(owners) > 1 or name == _ANY_CLASS
        ):
            yield why
    yield from (text for text, _ in _labels(raw, seen, lambda key: not _explains(name, key)))
    yield from _schedulers(raw, facts)
    for scheduler in raw.get("schedulers", ()):
        if scheduler["name"] != "default-scheduler" and facts.schedulers[scheduler["name"]]:
            yield f"pods with GPUs name the scheduler {scheduler['name']}"


def _offered(facts: InitFacts) -> dict[str, str]:
    """The extended resources of nodes, device classes and drivers, and what was seen of each.

    A driver's device class is called as the driver is, unless an administrator made another.
    """
    found: dict[str, list[Node]] = {}
    for node in facts.nodes:
        for resource in sorted(node.resources):
            found.setdefault(resource, []).append(node)
    offered = {
        resource: f"{resource} on {nodes_named(nodes)}" for resource, nodes in sorted(found.items())
    }
    for name in facts.device_classes:
        offered.setdefault(f"{_CLASS_RESOURCE}{name}", f"DeviceClass {name}")
    for driver in sorted(facts.drivers):
        offered.setdefault(f"{_CLASS_RESOURCE}{driver}", f"ResourceSlices of the driver {driver}")
    return offered


@cache
def _profiles_describing(resource: str) -> list[str]:
    """The profiles that describe a resource; that of all device classes only if no other does."""
    owners = [
        name
        for name, raw in built_in_profiles().items()
        if matches_any(tuple(raw.get("resources", ())), resource)
    ]
    return [name for name in owners if name != _ANY_CLASS] or owners


def _accounts(raw: Mapping[str, Any], namespace: str) -> list[str]:
    return [
        account
        for component in raw.get("components", ())
        if matches_any(tuple(component["namespaces"]), namespace)
        for account in component["serviceAccounts"]
    ]


def _labelled(nodes: Iterable[Node]) -> dict[tuple[str, str], list[Node]]:
    """The nodes that have each label, by its key and value."""
    found: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        for label in node.labels.items():
            found.setdefault(label, []).append(node)
    return dict(sorted(found.items()))


def _labels(
    raw: Mapping[str, Any], seen: _Seen, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, list[Node]]]:
    """The labels of nodes that the profile knows, in words, each with the nodes that have it."""
    known = [(key, tuple(v)) for key, v in _label_values(raw).items() if wanted(key)]
    for (key, value), nodes in seen.labelled.items():
        values = next((values for pattern, values in known if matches(pattern, key)), None)
        if values is not None and (not values or matches_any(values, value)):
            yield f"{key}={value} on {nodes_named(nodes)}", nodes


def _label_values(raw: Mapping[str, Any]) -> dict[str, list[str]]:
    return {**{key: [] for key in raw.get("nodeModes", ())}, **raw.get("nodeLabels", {})}


def _explains(name: str, key: str) -> bool:
    """Return whether a label with this key means the profile `name` and nothing else."""
    if "/" not in key or key.startswith(_COMMON_LABELS):
        return False
    return all(
        key not in _label_values(raw) or other == name for other, raw in built_in_profiles().items()
    )


def _schedulers(raw: Mapping[str, Any], facts: InitFacts) -> Iterator[str]:
    """Deployments of the schedulers, in namespaces that are theirs or the system's."""
    for scheduler in raw.get("schedulers", ()):
        name = scheduler["name"]
        for workload in facts.deployments:
            home = workload.namespace == "kube-system" or workload.namespace.startswith(name)
            if home and (workload.name == name or workload.name.startswith(f"{name}-")):
                yield f"Deployment {workload.namespace}/{workload.name}"
