"""The room on one card, and a pod's request of one card: a sum over cards shows neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.account import NodeLoad
from cluster.accounting.nodes import cards_of
from cluster.accounting.pod_requests import amount_of, whole
from cluster.accounting.shares import (
    FRACTION,
    MEMORY,
    PER_CARD,
    VOLCANO_MEMORY,
    Amount,
    requested,
    whole_number,
)
from cluster.why.amounts import NANO
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.node_labels import GPU_COUNT, GPU_MEM

COUNTED_BY_SCHEDULERS = PER_CARD | {"nvidia.com/gpumem-percentage"}
"""Resources that the schedulers of HAMi and Volcano count, and that no node need offer."""
_SHARED = (GPU_MEM, VOLCANO_MEMORY, "nvidia.com/gpumem", "volcano.sh/vgpu-memory")
_PLUGIN = "nvidia.com/gpu"
_DEVICES_OF_KAI = "gpu-fraction-num-devices"
KAI_KEYS = (FRACTION, MEMORY, _DEVICES_OF_KAI)
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
    rooms[FRACTION] = _room_of_kai(node, load)
    return rooms


def _room_of_kai(node: Mapping[str, Any], load: NodeLoad) -> CardRoom:
    """The part of a card that is free where KAI divides cards; a pod of KAI holds each one."""
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    cards = whole(amount_of(allocatable.get(_PLUGIN)))
    if not cards:
        return CardRoom(0, 0)
    if cards > whole(load.requests.get(_PLUGIN, 0)):
        return CardRoom(NANO, NANO)
    divided = [amount for (_, what), amount in load.shares.items() if what == FRACTION]
    return CardRoom(NANO, _nano(max((1 - min(amount, 1) for amount in divided), default=0)))


class CardRequest(NamedTuple):
    """A pod's request of one card, in units of 1e-9: `least`, and `most` if all is on one card."""

    least: int
    most: int


def asked_of_a_card(pod: Mapping[str, Any], memory: int) -> Mapping[str, CardRequest]:
    """Return the request of `pod` of one card, by resource.

    The cards of the node have `memory` MiB each.
    """
    metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
    found = {}
    is_spread = GPU_COUNT in as_object(metadata.get("labels"))
    for resource in _SHARED:
        amounts = [*_limits(spec, resource)]
        # With this label, ACK spreads the memory of a pod over several cards.
        if amounts and not (is_spread and resource == GPU_MEM):
            found[resource] = CardRequest(max(amounts), sum(amounts))
    for resource, amount in requested(pod, memory).items():
        cards = as_text(as_object(metadata.get("annotations")).get(_DEVICES_OF_KAI))
        count = whole_number(cards) or 1
        if resource != MEMORY:
            found[resource] = CardRequest(_nano(amount) // count, _nano(amount))
    return found


def _limits(spec: Mapping[str, Any], resource: str) -> Iterator[int]:
    for _, container in as_objects(spec.get("containers")):
        resources = as_object(container.get("resources"))
        for field in ("limits", "requests"):
            if amount := amount_of(as_object(resources.get(field)).get(resource)):
                yield amount
                break


def _nano(amount: Amount) -> int:
    return int(amount * NANO)
