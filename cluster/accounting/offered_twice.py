"""Cards that a node offers both by a device plugin and by a DRA driver.

Neither knows of the other: the scheduler then gives one card to a pod that asks for the resource of
the device plugin and to another that has a claim.
Source: NVIDIA/aicr issue 1327
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.claims import DriverCards, is_gpu_driver
from cluster.accounting.nodes import Total
from cluster.accounting.shares import Amount, whole_number
from rules.base.json_values import as_object, as_text
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.profile.profile import Profile

# How many cards a node has (NVIDIA/k8s-device-plugin docs/gpu-feature-discovery/README.md).
_CARDS_LABEL = "nvidia.com/gpu.count"


class OfferedTwice(NamedTuple):
    """A driver that offers the cards of a node, and the resources of a device plugin.

    The `resources` are the same cards: whole, as partitions, or as replicas.
    """

    driver: str
    resources: tuple[str, ...]

    def cards_taken(
        self, amounts: Mapping[str, Amount], totals: Mapping[str, Total], cards: int
    ) -> Amount:
        """Return how many of the `cards` pods may have by `amounts` of the resources.

        Only the kubelet knows which ones. If the device plugin divides cards, each pod may
        have a part of another one.
        """
        given = sum(amounts.get(resource, 0) for resource in self.resources)
        devices = sum(totals[resource].capacity for resource in self.resources)
        return min(given, cards) if devices > cards else given


def offered_twice(
    node: Mapping[str, Any],
    totals: Mapping[str, Total],
    cards: Mapping[str, DriverCards],
    profile: Profile,
) -> Iterator[OfferedTwice]:
    """The drivers whose cards of this node a device plugin offers too, each with its resources.

    `totals` are what the node has, by resource; `cards` those of its drivers. Cards of one maker
    are different ones if the node says that it has as many.
    """
    labels = as_object(as_object(node.get("metadata")).get("labels"))
    count = whole_number(as_text(labels.get(_CARDS_LABEL)))
    seen: set[str] = set()
    for driver in sorted(cards):
        known = profile.resource(f"{DEVICE_CLASS_PREFIX}{driver}")
        resources = tuple(
            resource
            for resource in sorted(totals)
            if known is not None
            and resource not in seen
            and totals[resource].capacity
            and _is_of_a_device_plugin(resource, known.vendor, profile)
        )
        if not resources:
            continue
        devices = sum(totals[resource].capacity for resource in resources)
        if not count or devices + len(cards[driver].offered) > count:
            seen.update(resources)
            yield OfferedTwice(driver, resources)


def _is_of_a_device_plugin(resource: str, vendor: str, profile: Profile) -> bool:
    known = profile.resource(resource)
    return (
        known is not None
        and known.vendor == vendor
        and known.unit == "device"
        and not is_gpu_driver(resource, profile)
    )
