"""How many GPUs the ResourceQuotas of a namespace allow."""

from __future__ import annotations

from typing import NamedTuple

from rules.base.quantity import Quantity, parse
from rules.inventory.inventory import Inventory
from rules.inventory.records import ResourceQuota


class Limit(NamedTuple):
    """How many devices a quota allows, and its name."""

    value: int
    name: str


def smallest_quota(inventory: Inventory, namespace: str, resource: str) -> Limit | None:
    """The smallest limit of the GPU resource in the quotas that count every pod; None if unknown.

    The API server rounds up to thousandths before it stores a quota, and counts whole devices.
    """
    limits = [
        Limit(amount.thousandths // 1000, name)
        for name, quota in inventory.all_in(ResourceQuota, namespace).items()
        if not quota.has_scopes
        and isinstance(amount := parse(quota.hard.get(f"requests.{resource}", "")), Quantity)
    ]
    return min(limits, default=None)
