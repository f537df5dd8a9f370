"""Room for new pods: how many pods with 1, 2, 4 or 8 whole cards fit on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cluster.accounting.usage import NodeUsage, WholeCards

SIZES = (1, 2, 4, 8)
"""Cards of one pod, for which room is counted."""


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

    All cards of a pod are on one node. Partitions and shares are left out: pods seldom take
    several. Empty if no node has whole cards.
    """
    by_model: dict[str, list[WholeCards]] = {}
    for node in nodes:
        if node.whole_cards is not None:
            by_model.setdefault(node.model, []).append(node.whole_cards)
    if not by_model:
        return ()
    everywhere = [cards for on_nodes in by_model.values() for cards in on_nodes]
    rooms = (ModelRoom(model, _rooms(on_nodes)) for model, on_nodes in sorted(by_model.items()))
    return (ModelRoom(None, _rooms(everywhere)), *rooms)


def _rooms(on_nodes: Iterable[WholeCards]) -> tuple[Room, ...]:
    """Return the room for pods of each of the SIZES where nodes have such cards."""
    counts = Counter(on_nodes)
    return tuple(_room(size, counts) for size in SIZES)


def _room(size: int, counts: Mapping[WholeCards, int]) -> Room:
    """Return the room for pods of `size`; `counts` are of nodes."""
    nodes = pods = 0
    for cards, count in counts.items():
        if fitting := max(min(cards.free // size, cards.pods), 0):
            nodes, pods = nodes + count, pods + fitting * count
    return Room(size, nodes, pods)
