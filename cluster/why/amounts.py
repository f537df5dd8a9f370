"""Amounts of resources, in units of 1e-9, as people write them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from cluster.accounting.pod_requests import Requests
from cluster.gpus.tables import text

NANO = 10**9
_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"))


def amount_text(name: str, amount: int) -> str:
    """An amount, in units of 1e-9, in the unit in which people write it."""
    if name == "cpu":
        return text(Decimal(amount) / NANO)
    if name in {"memory", "ephemeral-storage"} or name.startswith("hugepages-"):
        value = Decimal(amount) / NANO
        for size, unit in _UNITS:
            if value >= size:
                return f"{text(round(value / size, 1))}{unit}"
        return text(value)
    return text(-(-amount // NANO))


def requests_text(requests: Requests) -> Iterator[str]:
    """Each amount with its name, devices first, such as `4 nvidia.com/gpu`."""
    for name in sorted(requests, key=lambda key: ("/" not in key, key)):
        yield f"{amount_text(name, requests[name])} {name}"
