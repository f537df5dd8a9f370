"""The room on one card, and a pod's request of one card: a sum over cards shows neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.account import NodeLoad
from cluster.accounting.nodes import cards_of
from cluster.accounting.pod_requests import amount_of
from cluster.accounting.shares import (
    DEVICES_OF_KAI,
    FRACTION,
    MEMORY,
    PER_CARD,
    VOLCANO_CARDS,
    VOLCANO_MEMORY,
    Amount,
)
from cluster.why.amounts import NANO
from cluster.why.cards.divided_cards import PERCENTAGES
from rules.base.json_values import as_object, as_objects
from rules.placement.node_labels import GPU_COUNT, GPU_MEM

COUNTED_BY_SCHEDULERS = PER_CARD | {*PERCENTAGES.values()}
"""Resources that the schedulers of HAMi and Volcano count, and that no node need offer."""
_SHARED = (GPU_MEM, "nvidia.com/gpumem", "volcano.sh/vgpu-memory")
KAI_KEYS = (FRACTION, MEMORY, DEVICES_OF_KAI)
"""The annotations by which a pod asks KAI for a part of a card."""


class CardRoom(NamedTuple):
    """The amount of a resource on each card of a node, and the most that is free on one card.

    Amounts are in units of 1e-9. `is_known` is false if a pod has some of a card that nothing
    records: then less may be free.
    """

    total: int
    free: int
    is_known: bool = True


def rooms_of(node: Mapping[str, Any], load: NodeLoad) -> Mapping[str, CardRoom]:
    """The room on one card of `node`, by resource; `load` is what its pods take."""
    rooms: dict[str, CardRoom] = {}
    for card in cards_of(node):
        for resource, total in card.amounts.items():
            free = max(total - load.shares.get((card.card, resource), 0), 0)
            best = rooms.get(resource)
            if best is None or _nano(free) > best.free:
                is_known = resource not in load.unplaced
                rooms[resource] = CardRoom(total * NANO, _nano(free), is_known)
    if idle := _idle_of_volcano(node, load):
        rooms.setdefault(VOLCANO_MEMORY, CardRoom(0, 0))
        rooms[VOLCANO_CARDS] = idle
    return rooms


def _idle_of_volcano(node: Mapping[str, Any], load: NodeLoad) -> CardRoom | None:
    """The cards that Volcano gives as a whole: it gives no card of which a pod has memory."""
    capacity = as_object(as_object(node.get("status")).get("capacity"))
    if not (amount_of(capacity.get(VOLCANO_CARDS)) and amount_of(capacity.get(VOLCANO_MEMORY))):
        return None
    cards = [card.card for card in cards_of(node) if VOLCANO_CARDS in card.amounts]
    taken = {card for card, resource in load.shares if resource in {VOLCANO_CARDS, VOLCANO_MEMORY}}
    is_known = load.unplaced.isdisjoint({VOLCANO_CARDS, VOLCANO_MEMORY})
    idle = len({*cards} - taken)
    return CardRoom(len(cards) * NANO, idle * NANO, is_known)


class CardRequest(NamedTuple):
    """A pod's request of one card, in units of 1e-9: `least`, and `most` if all is on one card."""

    least: int
    most: int


def asked_of_a_card(pod: Mapping[str, Any]) -> Mapping[str, CardRequest]:
    """Return the request of `pod` of one card, by resource.

    Of whole cards of Volcano it is how many.
    """
    metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
    found = {}
    is_spread = GPU_COUNT in as_object(metadata.get("labels"))
    for resource in _SHARED:
        amounts = [*_limits(spec, resource)]
        # With this label, ACK spreads the memory of a pod over several cards.
        if amounts and not (is_spread and resource == GPU_MEM):
            found[resource] = CardRequest(max(amounts), sum(amounts))
    for resource in (VOLCANO_MEMORY, VOLCANO_CARDS):  # all containers have the same card
        asked = [sum(_limits(spec, resource)), *_limits(spec, resource, "initContainers")]
        if most := max(asked):
            found[resource] = CardRequest(most, most)
    return found


def _limits(spec: Mapping[str, Any], resource: str, field: str = "containers") -> Iterator[int]:
    for _, container in as_objects(spec.get(field)):
        resources = as_object(container.get("resources"))
        for key in ("limits", "requests"):
            if amount := amount_of(as_object(resources.get(key)).get(resource)):
                yield amount
                break


def _nano(amount: Amount) -> int:
    return int(amount * NANO)
