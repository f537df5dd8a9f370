"""How much of each GPU resource a node has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from cluster.gpus.claims import Device
from cluster.gpus.nodes import Card
from cluster.gpus.pod_requests import amount_of, whole
from cluster.gpus.shares import Amount
from cluster_commands.gpus.kai import FRACTION
from cluster_commands.gpus.resource_slices import cards_by_driver
from rules.base.json_access import as_object
from rules.profile.profile import Profile


class Total(NamedTuple):
    """What a node has of a resource, and how much of it pods may use."""

    capacity: Amount
    allocatable: Amount


def node_totals(
    status: Mapping[str, Any],
    cards: Iterable[Card],
    offered: Iterable[Device],
    shared_cards: Collection[str],
    profile: Profile,
) -> Mapping[str, Total]:
    """The totals of a node by resource.

    They are from its `status`; of resources that are not there, from the `cards` that its device
    plugin has registered; and from its devices in ResourceSlices, by driver. `shared_cards` are
    those that KAI has divided.
    """
    capacity = as_object(status.get("capacity"))
    allocatable = as_object(status.get("allocatable"))
    totals: dict[str, Total] = {}
    for resource in {**allocatable, **capacity}:
        if profile.resource(resource) is not None:
            usable = whole(amount_of(allocatable.get(resource)))
            totals[resource] = Total(max(whole(amount_of(capacity.get(resource))), usable), usable)
    registered: dict[str, int] = defaultdict(int)
    for card in cards:
        for resource, amount in card.amounts.items():
            registered[resource] += amount
    for resource, amount in registered.items():
        totals.setdefault(resource, Total(amount, amount))
    for driver, found in cards_by_driver(offered).items():
        totals[driver] = Total(len(found.offered), len(found.usable))
    if shared_cards:
        totals[FRACTION] = Total(len(shared_cards), len(shared_cards))
    return totals
