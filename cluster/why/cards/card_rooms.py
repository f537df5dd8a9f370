"""The room on one card, and a pod's request of one card: a sum over cards shows neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.account import NodeLoad
from cluster.accounting.nodes import cards_of
from cluster.accounting.pod_requests import amount_of, whole
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
from policies.loading import default_policy
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.node_labels import GPU_MEM
from rules.placement.selected_cards import (
    MAX_CARDS_PER_NODE,
    cards_of_share,
    labelled_share_of_card,
)

COUNTED_BY_SCHEDULERS = PER_CARD | {*PERCENTAGES.values()}
"""Resources that the schedulers of HAMi and Volcano count, and that no node need offer."""
_SHARED = (GPU_MEM, "nvidia.com/gpumem", "volcano.sh/vgpu-memory")
KAI_KEYS = (FRACTION, MEMORY, DEVICES_OF_KAI)
"""The annotations by which a pod asks KAI for a part of a card."""


class CardRoom(NamedTuple):
    """The amount of a resource on each card of a node, and the most that is free on one card.

    Amounts are in units of 1e-9. `others` is what is free on each of the other cards, the most
    first. `is_known` is false if less may be free: a pod has some of a card that nothing records,
    or the node does not say how many cards it has.
    """

    total: int
    free: int
    is_known: bool = True
    others: tuple[int, ...] = ()

    def free_on_each(self, cards: int) -> int:
        """Return the most that is free on each of so many cards; 0 if there are fewer."""
        frees = (self.free, *self.others)
        return frees[cards - 1] if cards <= len(frees) else 0


def rooms_of(node: Mapping[str, Any], load: NodeLoad) -> Mapping[str, CardRoom]:
    """The room on one card of `node`, by resource; `load` is what its pods take."""
    by_resource: dict[str, list[tuple[int, int]]] = {}
    for card in cards_of(node):
        for resource, total in card.amounts.items():
            free = max(total - load.shares.get((card.card, resource), 0), 0)
            by_resource.setdefault(resource, []).append((_nano(free), total * NANO))
    rooms: dict[str, CardRoom] = {}
    for resource, cards in by_resource.items():
        (free, total), *rest = sorted(cards, reverse=True)
        others = tuple(other for other, _ in rest)
        rooms[resource] = CardRoom(total, free, resource not in load.unplaced, others)
    if GPU_MEM not in rooms and (each := _labelled(node)):
        alike = (each * NANO,) * (MAX_CARDS_PER_NODE - 1)
        rooms[GPU_MEM] = CardRoom(each * NANO, each * NANO, is_known=False, others=alike)
    if idle := _idle_of_volcano(node, load):
        rooms.setdefault(VOLCANO_MEMORY, CardRoom(0, 0))
        rooms[VOLCANO_CARDS] = idle
    return rooms


def _labelled(node: Mapping[str, Any]) -> int:
    """The memory of a card by the labels of a node that does not say how many it has; 0 if none."""
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    resource = default_policy().profile.resource(GPU_MEM) if GPU_MEM in allocatable else None
    if resource is None:
        return 0
    given = as_object(as_object(node.get("metadata")).get("labels"))
    labels = {key: as_text(value) for key, value in given.items()}
    return labelled_share_of_card(labels, whole(amount_of(allocatable[GPU_MEM])), resource.unit)


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
    """A pod's request of one card, in units of 1e-9: `least`, and `most` if all is on one card.

    It gets as much of each of several `cards` if it says so.
    """

    least: int
    most: int
    cards: int = 1


def asked_of_a_card(pod: Mapping[str, Any]) -> Mapping[str, CardRequest]:
    """Return the request of `pod` of one card, by resource.

    Of whole cards of Volcano it is how many.
    """
    labels = as_object(as_object(pod.get("metadata")).get("labels"))
    spec = as_object(pod.get("spec"))
    found = {}
    for resource in _SHARED:
        amounts, initial = [*_limits(spec, resource)], [*_limits(spec, resource, "initContainers")]
        if amounts or initial:
            cards = cards_of_share(labels) if resource == GPU_MEM else 1
            least, most = max((*amounts, *initial)), max((sum(amounts), *initial))
            found[resource] = CardRequest(-(-least // cards), -(-most // cards), cards)
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
