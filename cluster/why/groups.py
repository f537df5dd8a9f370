"""Nodes that refuse a pod, in groups that are alike, each with what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple, TypeAlias

from cluster.gpus.tables import text
from cluster.why.amounts import NANO, amount_text
from cluster.why.devices.refusals import NOT_OFFERED
from cluster.why.filters import Obstacle, Wanted
from cluster.why.nodes import Node
from cluster.why.placed.words import words_about_pods
from reports.formats import some


class NodeGroup(NamedTuple):
    """Nodes that are alike and refuse a pod for the same reasons, with what would change it.

    `reasons` and `messages` are those of the first filter that refuses them, in plain words and in
    those of kube-scheduler; `further` is what would refuse the pod after that.
    """

    model: str
    names: tuple[str, ...]
    reasons: tuple[str, ...]
    messages: tuple[str, ...]
    remedies: tuple[str, ...]
    further: tuple[str, ...] = ()


def group_nodes(refused: Iterable[tuple[Node, Refusals]], wanted: Wanted) -> list[NodeGroup]:
    """The nodes that refuse a pod in groups, those first that come nearest to taking it."""
    alike: dict[tuple[Any, ...], list[tuple[Node, Refusals]]] = {}
    for node, refusals in refused:
        subjects = tuple((o.message, _subject(o)) for found in refusals for o in found)
        key = node.model, node.devices, subjects
        alike.setdefault(key, []).append((node, refusals))
    ordered = []
    for members in alike.values():
        group, (_, refusals) = _group(members, wanted), members[0]
        is_selected = all(one.plugin != "NodeAffinity" for one in refusals[0])
        ordered.append((_order(group, is_selected=is_selected), group))
    return [group for _, group in sorted(ordered, key=lambda pair: pair[0])]


def _subject(obstacle: Obstacle) -> tuple[Any, ...]:
    """Return what tells groups apart.

    How much is free differs from node to node, and does not tell groups apart.
    """
    if not obstacle.asked:
        return (obstacle.subject, obstacle.kept_for)
    is_too_small = obstacle.asked > obstacle.total
    is_device = "/" in obstacle.subject
    # Nodes of one kind differ by some bytes of memory, and not by a device.
    sizes = (obstacle.total, obstacle.capacity, obstacle.is_expected) if is_device else ()
    return (obstacle.subject, obstacle.kept_for, bool(obstacle.total), is_too_small, *sizes)


Refusals: TypeAlias = Sequence[Sequence[Obstacle]]
"""The obstacles that each filter names that refuses a node."""


def _group(members: Sequence[tuple[Node, Refusals]], wanted: Wanted) -> NodeGroup:
    node, refusals = _nearest(members)
    first, *others = refusals
    reasons = []
    for index, obstacle in enumerate(first):
        same = [found[0][index] for _, found in members]
        reasons += [_reason(obstacle, same), *_details(obstacle, node, members)]
    remedies = [_remedy(obstacle, first, node, wanted) for obstacle in first]
    further = [
        _reason(obstacle, [found[number][index] for _, found in members])
        for number, later in enumerate(others, 1)
        for index, obstacle in enumerate(later)
    ]
    if kept_for := first[0].kept_for:
        reasons.append(f"kube-scheduler keeps room there for {some(kept_for)}")
    left = wanted.obstacles_without(first, node)
    if left is not None:
        further = [_reason(obstacle, [obstacle]) for later in left for obstacle in later]
    if lacking := [o for o in first if _is_lacking(o)]:
        reasons = [_reason(obstacle, [obstacle]) for obstacle in lacking]
        remedies = [_offer(node, lacking[0])]
        further = [_reason(o, [o]) for o in first if o not in lacking] + further
    return NodeGroup(
        node.model,
        tuple(sorted(node.name for node, _ in members)),
        tuple(reasons),
        tuple(dict.fromkeys(obstacle.message for obstacle in first)),
        tuple(dict.fromkeys(filter(None, remedies))),
        tuple(further),
    )


def _nearest(members: Sequence[tuple[Node, Refusals]]) -> tuple[Node, Refusals]:
    """The member that lacks least: the remedies are for one node, and not for several at once."""
    return max(members, key=lambda member: [(one.total, one.free) for one in member[1][0]])


def _details(obstacle: Obstacle, node: Node, members: Sequence[Any]) -> list[str]:
    """Return the reasons against the devices of a node: of several nodes, those of one."""
    where = f"on {node.name}, " if len(members) > 1 else ""
    return [f"{where}{line}" for line in obstacle.words[1:]]


def _order(group: NodeGroup, *, is_selected: bool) -> tuple[Any, ...]:
    """Nodes that could take the pod first: those where a single thing is in its way.

    Of these first the ones that it selects: among them it waits.
    """
    is_for_others = any(NOT_OFFERED in reason for reason in (*group.reasons, *group.further))
    names = -len(group.names), group.model, group.messages
    return is_for_others, bool(group.further), not is_selected, *names


def _is_lacking(obstacle: Obstacle) -> bool:
    """Return whether a node does not offer a device at all."""
    is_missing = obstacle.plugin == "NodeResourcesFit" and not obstacle.total
    return is_missing and "/" in obstacle.subject


_NO_PLUGIN = (
    "and the nodes offer none, although their labels say that they have such cards: no device "
    "plugin has registered there"
)
_LOOK_AT_PLUGIN = (
    "look at the device plugin and the cards of these nodes: gpuward doctor, gpuward gpus"
)


def _reason(obstacle: Obstacle, same: Sequence[Obstacle]) -> str:
    reason, _ = words_about_pods(obstacle)
    match obstacle.plugin:
        case "NodeUnschedulable":
            reason = "the nodes are cordoned"
        case "TaintToleration":
            reason = f"the pod does not tolerate the taint {obstacle.subject}"
        case "NodeAffinity":
            reason = "the pod names other nodes"
            if obstacle.subject:
                reason = f"the pod selects {obstacle.subject}"
        case "NodeResourcesFit":
            most = max(same, key=lambda one: one.total)
            is_too_small = most.asked > most.total
            reason = _shortage(most if is_too_small else max(same, key=lambda one: one.free))
        case _ if obstacle.words:
            reason = obstacle.words[0]
        case "MPS":
            reason = (
                f"a container asks for {_whole(obstacle.asked)} {obstacle.subject}, and the device "
                "plugin gives a container only one share of a card that MPS shares: the kubelet "
                "refuses the pod"
            )
        case "Card" if obstacle.words:
            reason = obstacle.words[0]
        case "Card":
            best = max(same, key=lambda one: one.free)
            asked, free, total = map(_of_card, (best.asked, best.free, best.total))
            reason = (
                f"the pod asks for {asked} {best.subject} of one card, and at most {free} of "
                f"{total} are free on one card"
            )
    return reason


def _shortage(best: Obstacle) -> str:
    name = best.subject
    if name == "pods":
        return f"no room for one more pod: at most {_whole(best.total)} run there"
    asked, free, total = (amount_text(name, n) for n in (best.asked, max(best.free, 0), best.total))
    if not best.total:
        missing = NOT_OFFERED
        if best.capacity:
            missing = f"and none of the {_whole(best.capacity)} is healthy"
        elif best.is_expected:
            missing = _NO_PLUGIN
    elif best.total < best.asked <= best.capacity:
        missing = f"and only {total} of {_whole(best.capacity)} are healthy on one node"
    elif best.asked > best.total:
        missing = f"and a node has at most {total}"
    else:
        missing = f"and at most {free} of {total} are free on one node"
    return f"the pod asks for {asked} {name}, {missing}"


def _remedy(obstacle: Obstacle, first: Sequence[Obstacle], node: Node, wanted: Wanted) -> str:
    """Return what would remove one of the `first` obstacles of a node."""
    _, remedy = words_about_pods(obstacle)
    match obstacle.plugin:
        case "NodeUnschedulable":
            remedy = f"if they may take pods again: kubectl uncordon {node.name}"
        case "TaintToleration":
            remedy = f"add a toleration for {obstacle.subject}, if the pod may run there"
            if obstacle.subject.startswith("node.kubernetes.io/"):
                remedy = "wait until the node is well: Kubernetes itself has set the taint"
        case "NodeAffinity":
            remedy = "change nodeSelector or node affinity, or label nodes that should take it"
        case "NodeResourcesFit":
            remedy = _remedy_of_shortage(obstacle, first, wanted)
        case "MPS":
            remedy = "ask for one share, or for nodes whose cards are whole"
        case "Card":
            remedy = "wait until that much is free on one card, or ask for less"
        case _:
            remedy = remedy or obstacle.remedy
    return remedy


def _remedy_of_shortage(obstacle: Obstacle, first: Sequence[Obstacle], wanted: Wanted) -> str:
    name, total, free = obstacle.subject, obstacle.total, obstacle.free
    if name == "pods":
        count = -((free - obstacle.asked) // NANO)
        return "wait until a pod there ends" if count == 1 else f"wait until {count} pods there end"
    if total < obstacle.asked <= obstacle.capacity:
        return _LOOK_AT_PLUGIN
    # No container has that much: the RuntimeClass asks for it.
    least = wanted.overhead.get(name, 0)
    if obstacle.asked > total:
        return _less_of(obstacle, least)
    stranded = _stranded_gpu(name, first, wanted)
    why = f": the {stranded} there is free, and stranded by too little {name} beside it"
    if stranded and free > least:
        return f"ask for at most {amount_text(name, free, ROUND_FLOOR)} {name}{why}"
    missing = amount_text(name, obstacle.asked - free, ROUND_CEILING)
    return f"wait until {missing} more {name} is released there{why if stranded else ''}"


def _stranded_gpu(name: str, first: Sequence[Obstacle], wanted: Wanted) -> str:
    """Return the requested device that is free where `name` is short; empty if none is."""
    gpus = [key for key in wanted.requests if "/" in key]
    is_beside = name in {"cpu", "memory"} and not any(other.subject in gpus for other in first)
    return gpus[0] if gpus and is_beside else ""


def _less_of(obstacle: Obstacle, least: int) -> str:
    """Return the remedy for a pod that asks for more than a node has; empty if it needs `least`."""
    name, total, free = obstacle.subject, obstacle.total, obstacle.free
    if total <= least:
        return ""
    if free == total:
        most = amount_text(name, total, ROUND_FLOOR)
        return f"ask for at most {most} {name} in one pod, and use several pods"
    if free > least:
        most = amount_text(name, free, ROUND_FLOOR)
        return f"ask for at most {most} {name} in one pod, which is free now, and use several pods"
    most = amount_text(name, total, ROUND_FLOOR)
    return (
        f"ask for at most {most} {name} in one pod, use several pods, and wait until all of it is "
        "released there"
    )


def _offer(node: Node, lacking: Obstacle) -> str:
    """Return what to do about a node without the requested devices; empty without devices."""
    if lacking.capacity or lacking.is_expected:
        return _LOOK_AT_PLUGIN
    return f"ask for what these nodes offer: {some(sorted(node.devices))}" if node.devices else ""


def _whole(amount: int) -> str:
    return text(amount // NANO)


def _of_card(amount: int) -> str:
    return text((Decimal(amount) / NANO).normalize())
