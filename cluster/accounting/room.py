"""Room for new pods: how many pods with 1, 2, 4 or 8 whole cards fit on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from cluster.accounting.usage import NodeUsage, ResourceUsage

SIZES = (1, 2, 4, 8)
"""Cards of one pod, for which room is counted."""
_MAX_CARDS_OF_A_NODE = 16  # more are replicas or shares


class Room(NamedTuple):
    """The number of pods with so many cards that fit, and of the nodes on which they do."""

    size: int
    nodes: int
    pods: int


class ModelRoom(NamedTuple):
    """The room on the nodes of one model; of all models if `model` is None."""

    model: str | None
    rooms: tuple[Room, ...]


def room_by_model(nodes: Iterable[NodeUsage]) -> tuple[ModelRoom, ...]:
    """Return the room on all nodes, then on those of each model, of nodes that have whole cards.

    Empty if no node has any.
    """
    with_cards = sorted((node for node in nodes if has_whole_cards((node,))), key=_model)
    if not with_cards:
        return ()
    by_model = (
        ModelRoom(model, room_on(tuple(members))) for model, members in groupby(with_cards, _model)
    )
    return (ModelRoom(None, room_on(with_cards)), *by_model)


def room_on(nodes: Sequence[NodeUsage]) -> tuple[Room, ...]:
    """Return the room on nodes for pods of each of the SIZES; all cards of a pod are on one node.

    Partitions and shares are left out: pods seldom take several.
    """
    return tuple(_rooms(nodes))


def _rooms(nodes: Iterable[NodeUsage]) -> Iterator[Room]:
    free = [
        int(used.free)
        for node in nodes
        for used in node.resources
        if used.free and _is_whole(used, node)
    ]
    for size in SIZES:
        pods = [amount // size for amount in free if amount >= size]
        yield Room(size, len(pods), sum(pods))


def has_whole_cards(nodes: Iterable[NodeUsage]) -> bool:
    """Return whether some of the nodes offer whole cards, free or not."""
    return any(used.total and _is_whole(used, node) for node in nodes for used in node.resources)


def _is_whole(used: ResourceUsage, node: NodeUsage) -> bool:
    name = used.resource.rpartition("/")[2]
    is_shared = "shared" in name or node.model.lower().endswith("-shared")  # as GFD labels replicas
    is_part = used.free_on_card is not None or "mig-" in name
    return (used.total or 0) <= _MAX_CARDS_OF_A_NODE and not (is_shared or is_part)


def _model(node: NodeUsage) -> str:
    return node.model
