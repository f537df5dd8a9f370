"""The differences between a cluster and the built-in profiles, as entries of an own profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cluster.init.choice import nodes_named
from cluster.init.facts import InitFacts, Node
from cluster.source.objects import DEPLOYMENTS, PODS
from rules.base.text_matching import matches_any
from rules.placement.node_labels import GPU_COUNT, offered_resources
from rules.profile.profile import Profile, Taint

_MAX_ENTRIES = 20  # of a kind: more are no platform, but the work of many hands


class Entry(NamedTuple):
    """A value, and what was seen. Not `certain`: it may be right, and the user decides."""

    value: Any
    why: str
    certain: bool = True


def taints(facts: InitFacts, profile: Profile) -> list[Entry]:
    """The taints of GPU nodes that the profile does not know.

    A taint is certain if every node that offers the same GPUs has it, and no other node: no pod
    gets such a GPU without tolerating it, unless the taint is a preference. Those of the most nodes
    come first.
    """
    offers = {node.name: gpus_of(node, profile) for node in facts.nodes}
    found: dict[Taint, list[Node]] = {}
    for node in facts.nodes:
        for taint in node.taints:
            found.setdefault(taint, []).append(node)
    entries: list[Entry] = []
    for taint, nodes in sorted(found.items(), key=lambda pair: (-len(pair[1]), str(pair[0]))):
        if len(entries) == _MAX_ENTRIES:
            break
        tainted = [node for node in nodes if offers[node.name]]
        resources = sorted({name for node in tainted for name in offers[node.name]})
        if not tainted or any(_tolerates(known, taint, resources) for known in profile.taints):
            continue
        alike = [node for node in facts.nodes if not offers[node.name].isdisjoint(resources)]
        value = taint_value(taint._replace(resources=tuple(resources)))
        if len(tainted) < len(alike):
            why = f"on {nodes_named(tainted)}, and not on all {len(alike)} that offer the same"
        elif len(nodes) > len(tainted):
            why = f"on {nodes_named(tainted)}, and on nodes without GPUs"
        elif taint.effect == "PreferNoSchedule":
            why = f"on {nodes_named(tainted)}, which pods get without tolerating it, if no other"
        else:
            entries.append(Entry(value, f"on every node that offers these: {nodes_named(alike)}"))
            continue
        entries.append(
            Entry(value, f"{why}: should all pods that ask for these tolerate it?", certain=False)
        )
    return entries


def schedulers(facts: InitFacts, profile: Profile) -> list[Entry]:
    """The schedulers that pods with GPUs name, and the profile does not know."""
    known = {"default-scheduler", *profile.scheduler_names}
    resources = sorted({name for node in facts.nodes for name in gpus_of(node, profile)})
    question = "pods with GPUs name it: must it place all that ask for these?"
    unknown = sorted(facts.schedulers.keys() - known)[:_MAX_ENTRIES]
    return [Entry({"name": n, "resources": resources}, question, certain=False) for n in unknown]


def unseen_schedulers(facts: InitFacts, profile: Profile) -> list[str]:
    """The schedulers of the profile for which nothing speaks in the cluster, if that is known."""
    if not facts.missing.keys().isdisjoint({PODS, DEPLOYMENTS}):
        return []
    seen = {*facts.schedulers, *(workload.name for workload in facts.deployments)}
    return [
        name
        for name in sorted({s.name for s in profile.schedulers} - {"default-scheduler"})
        if not any(other == name or other.startswith(f"{name}-") for other in seen)
    ]


def components(facts: InitFacts, profile: Profile) -> list[Entry]:
    """The device plugins that are no components yet. No rule applies to components."""
    entries = []
    for workload in facts.daemon_sets:
        home, account = workload.namespace, workload.service_account
        if workload.is_device_plugin and not is_component(profile, home, account):
            why = (
                f"DaemonSet {home}/{workload.name} is a device plugin: "
                "should no rule apply to the pods of this account that DaemonSets make?"
            )
            value = {"namespaces": [home], "serviceAccounts": [account]}
            entries.append(Entry(value, why, certain=False))
    return entries[:_MAX_ENTRIES]


def is_component(profile: Profile, namespace: str, account: str) -> bool:
    """Return whether pods of this account belong to the GPU platform."""
    homes = profile.components_in(namespace)
    return any(matches_any(component.service_accounts, account) for component in homes)


def node_modes(facts: InitFacts, profile: Profile) -> list[Entry]:
    """Labels that tell a node's mode with values that the profile lacks, with all values."""
    entries = []
    for key, modes in sorted(profile.node_modes.items()):
        new: dict[str, list[Node]] = {}
        for node in facts.nodes:
            value = node.labels.get(key, "")
            if value and offered_resources(modes, value) is None:
                new.setdefault(value, []).append(node)
        if new:
            offered = {
                value: sorted(frozenset.intersection(*(gpus_of(n, profile) for n in nodes)))
                for value, nodes in sorted(new.items())[:_MAX_ENTRIES]
            }
            table = {value: list(names) for value, names in modes.items()} | offered
            seen = "; ".join(f"{v} on {nodes_named(new[v])}" for v in list(offered)[:3])
            why = f"{seen}: a mode of your platform, or a mistake?"
            entries.append(Entry({key: table}, why, certain=False))
    return entries


def runtime_classes(facts: InitFacts, profile: Profile) -> list[Entry]:
    """Runtime classes whose handler is one that gives access to GPUs."""
    return [
        Entry(name, f"RuntimeClass with the handler {handler}")
        for name, handler in facts.runtime_classes.items()
        if handler in profile.runtime_classes and name not in profile.runtime_classes
    ][:_MAX_ENTRIES]


def resources(facts: InitFacts, profile: Profile) -> list[Entry]:
    """Names by which device classes can be requested, and of which nothing is known."""
    question = "is it a GPU?"
    return [
        Entry({name: {"vendor": "other"}}, f"of DeviceClass {device}: {question}", certain=False)
        for device, name in facts.device_classes.items()
        if name and profile.resource(name) is None
    ][:_MAX_ENTRIES]


def unknown_resources(facts: InitFacts, profile: Profile) -> Iterator[str]:
    """The extended resources of nodes that no profile knows."""
    named = {name for node in facts.nodes for name in node.resources}
    for name in sorted(named):
        # kubernetes.io is the domain of Kubernetes itself. No pod asks for ACK's number of cards.
        is_ignored = name == GPU_COUNT or name.partition("/")[0].endswith("kubernetes.io")
        if profile.resource(name) is None and not is_ignored:
            yield name


def gpus_of(node: Node, profile: Profile) -> frozenset[str]:
    """The GPU resources of a node that the chosen profiles describe."""
    return frozenset(name for name in node.resources if matches_any(profile.active, name))


def taint_value(taint: Taint) -> dict[str, Any]:
    """A taint as a policy has it."""
    value = {"resources": list(taint.resources), "key": taint.key, "value": taint.value}
    value |= {"effect": taint.effect, "toleratedFor": list(taint.tolerated_for)}
    return {key: given for key, given in value.items() if given}


def _tolerates(known: Taint, taint: Taint, names: list[str]) -> bool:
    same = (known.key, known.effect) == (taint.key, taint.effect)
    covers = all(matches_any(known.resources, name) for name in names)
    return same and known.value in {None, taint.value} and covers
