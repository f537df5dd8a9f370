"""Room for new pods: how many pods with 1, 2, 4 or 8 whole cards fit on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
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

    All cards of a pod are on one node. Partitions and shares are left out: pods seldom take
    several. Empty if no node has whole cards.
    """
    free_by_model: dict[str, list[int]] = {}
    for node in nodes:
        for used in node.resources:
            if used.total and _is_whole(used, node.model):
                free_by_model.setdefault(node.model, []).append(int(used.free))
    if not free_by_model:
        return ()
    everywhere = [amount for free in free_by_model.values() for amount in free]
    by_model = (ModelRoom(model, _rooms(free)) for model, free in sorted(free_by_model.items()))
    return (ModelRoom(None, _rooms(everywhere)), *by_model)


def _rooms(free: Sequence[int]) -> tuple[Room, ...]:
    """Return the room for pods of each of the SIZES where so many cards are free on each node."""
    counts = Counter(free)
    return tuple(
        Room(
            size,
            sum(nodes for amount, nodes in counts.items() if amount >= size),
            sum(amount // size * nodes for amount, nodes in counts.items()),
        )
        for size in SIZES
    )


def _is_whole(used: ResourceUsage, model: str) -> bool:
    is_part = used.free_on_card is not None or (used.total or 0) > _MAX_CARDS_OF_A_NODE
    return not is_part and _names_whole_cards(used.resource, model)


@lru_cache(maxsize=256)
def _names_whole_cards(resource: str, model: str) -> bool:
    name = resource.rpartition("/")[2]
    is_shared = "shared" in name or model.lower().endswith("-shared")  # as GFD labels replicas
    return not is_shared and "mig-" not in name
