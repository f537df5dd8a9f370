"""The output of `kubectl inspect cgpu`, for those who read it by eye or by script.

Source: AliyunContainerService/gpushare-device-plugin cmd/inspect. It differs from the other views
of this command in what it counts: limits of app containers alone, of the resource
`aliyun.com/gpu-mem` alone. The tool lists nodes in random order; here they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cluster.accounting.pod_requests import amount_of, has_terminated, whole
from cluster.accounting.shares import allocation_by_card
from cluster.gpus.tables import align
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.node_labels import GPU_COUNT, GPU_MEM
from terminal import printable

Object = Mapping[str, Any]
_PENDING = -1
# Above this amount for each card, the tool takes it for MiB.
_MOST_GIB = 100
_MAX_CARDS = 1000


class _Pod(NamedTuple):
    namespace: str
    name: str
    memory: int
    by_card: Mapping[int, int]


class _Node(NamedTuple):
    name: str
    address: str
    memory: int
    cards: int
    pods: list[_Pod]

    @property
    def used(self) -> Mapping[int, int]:
        """Return the amounts of pods by card, with those on no card under -1."""
        used: dict[int, int] = {}
        for pod in self.pods:
            for card, amount in pod.by_card.items():
                used[card] = used.get(card, 0) + amount
        return used


def inspect(nodes: Iterable[Object], pods: Iterable[Object], *, details: bool = False) -> str:
    """The text that the tool prints; with `details` that of its option `-d`."""
    shared = {node.name: node for node in sorted(filter(None, map(_node, nodes)))}
    for pod in pods:
        spec = as_object(pod.get("spec"))
        node = shared.get(as_text(spec.get("nodeName")))
        if (
            node is not None
            and not has_terminated(pod)
            and (found := _pod_on_shared_cards(pod, spec))
        ):
            node.pods.append(found)
    found_nodes = list(shared.values())
    return align(_details(found_nodes) if details else _summary(found_nodes))


def _node(node: Object) -> _Node | None:
    status = as_object(node.get("status"))
    allocatable = as_object(status.get("allocatable"))
    memory = whole(amount_of(allocatable.get(GPU_MEM)))
    if not memory:
        return None
    addresses = as_objects(status.get("addresses"))
    internal = (as_text(a.get("address")) for _, a in addresses if a.get("type") == "InternalIP")
    name = printable(as_text(as_object(node.get("metadata")).get("name")))
    count = min(whole(amount_of(allocatable.get(GPU_COUNT))), _MAX_CARDS)
    return _Node(
        name=name, address=printable(next(internal, "unknown")), memory=memory, cards=count, pods=[]
    )


def _pod_on_shared_cards(pod: Object, spec: Object) -> _Pod | None:
    limits = (
        as_object(as_object(container.get("resources")).get("limits"))
        for _, container in as_objects(spec.get("containers"))
    )
    memory = sum(whole(amount_of(limit.get(GPU_MEM))) for limit in limits)
    if not memory:
        return None
    metadata = as_object(pod.get("metadata"))
    annotations = as_object(metadata.get("annotations"))
    by_card = allocation_by_card(
        as_text(annotations.get("scheduler.framework.gpushare.allocation"))
    )
    if not by_card:
        try:
            card = int(as_text(annotations.get("ALIYUN_COM_GPU_MEM_IDX"))[:10])
        except ValueError:
            card = _PENDING
        by_card = {card: memory}
    namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
    return _Pod(
        namespace=printable(namespace), name=printable(name), memory=memory, by_card=by_card
    )


def _summary(nodes: list[_Node]) -> str:
    most = max((node.cards for node in nodes), default=0)
    has_pending = any(_PENDING in node.used for node in nodes)
    cards = "".join(f"GPU{index}(Allocated/Total)\t" for index in range(most))
    pending = "PENDING(Allocated)\t" if has_pending else ""
    lines = [f"NAME\tIPADDRESS\t{cards}{pending}GPU Memory({_unit(nodes)})"]
    used_in_cluster = 0
    for node in nodes:
        used = node.used
        shown = [_card(node, used, index) for index in range(most)]
        if has_pending:
            shown.append(str(used.get(_PENDING, "")))
        counted = sum(
            amount for card, amount in used.items() if card == _PENDING or 0 <= card < most
        )
        used_in_cluster += counted
        lines.append("\t".join((node.name, node.address, *shown, f"{counted}/{node.memory}")))
    # The tool counts the bytes of the first row, before it is aligned.
    dashes = "-" * (len(lines[1].encode()) + 1 + 20) if nodes else ""
    total = _share(used_in_cluster, sum(node.memory for node in nodes))
    return "\n".join((*lines, dashes, "Allocated/Total GPU Memory In Cluster:", f"{total}\t\n"))


def _card(node: _Node, used: Mapping[int, int], index: int) -> str:
    if index >= node.cards and index not in used:
        return "0/0"
    total = node.memory // node.cards if node.cards else 0
    return f"{used.get(index, 0)}/{total}"


def _details(nodes: list[_Node]) -> str:
    parts: list[str] = []
    dashes = used_in_cluster = 0
    for node in nodes:
        used = node.used
        has_pending = _PENDING in used
        rows = "".join(_detail_row(pod, node.cards, has_pending) for pod in node.pods)
        dashes = dashes or len(rows.encode()) + 10
        cards = "".join(f"GPU{index}(Allocated)\t" for index in range(node.cards))
        pending = "Pending(Allocated)\t" if has_pending else ""
        total = sum(used.values())
        used_in_cluster += total
        percent = _percent(total, node.memory)
        parts.append(
            f"\nNAME:\t{node.name}\nIPADDRESS:\t{node.address}\n\n"
            f"NAME\tNAMESPACE\t{cards}{pending}\n{rows}"
            f"Allocated :\t{total} ({percent}%)\t\nTotal :\t{node.memory} \t\n{'-' * dashes}\n"
        )
    total_memory = sum(node.memory for node in nodes)
    share = _share(used_in_cluster, total_memory)
    return "".join((*parts, f"\n\nAllocated/Total GPU Memory In Cluster:\t{share}\t\n"))


def _detail_row(pod: _Pod, count: int, has_pending: bool) -> str:  # noqa: FBT001  # a private function
    amounts = [str(pod.by_card.get(index, 0)) for index in range(count)]
    if has_pending:
        # The tool takes this column for that of one more card. Where the node does not say how many
        # it has, that is the card 0.
        amounts.append(str(pod.by_card.get(count, pod.by_card.get(_PENDING, 0))))
    return "".join(f"{cell}\t" for cell in (pod.name, pod.namespace, *amounts)) + "\n"


def _unit(nodes: Iterable[_Node]) -> str:
    """The unit as the tool guesses it from the first node that says how many cards it has."""
    for node in nodes:
        if node.cards:
            return "MiB" if node.memory // node.cards > _MOST_GIB else "GiB"
    return ""


def _share(used: int, total: int) -> str:
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0
