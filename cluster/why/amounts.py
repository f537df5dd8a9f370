"""Amounts of resources, in units of 1e-9, as people write them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from cluster.accounting.pod_requests import Requests
from cluster.gpus.tables import text

NANO = 10**9
_TENTH = Decimal("0.1")
_MANY_DIGITS = Context(prec=100)  # a pod may ask for 1e40 bytes, and sums are larger
_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"))


def amount_text(name: str, amount: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """An amount, in units of 1e-9, in the unit in which people write it.

    `rounding` is one of the module decimal.
    """
    if name == "cpu":
        return text(Decimal(amount) / NANO)
    if name in {"memory", "ephemeral-storage"} or name.startswith("hugepages-"):
        value = Decimal(amount) / NANO
        for size, unit in _UNITS:
            if value >= size:
                return f"{text((value / size).quantize(_TENTH, rounding, _MANY_DIGITS))}{unit}"
        return text(value)
    return text(amount // NANO if rounding == ROUND_FLOOR else -(-amount // NANO))


def requests_text(requests: Requests) -> Iterator[str]:
    """Each amount with its name, devices first, such as `4 nvidia.com/gpu`."""
    for name in sorted(requests, key=lambda key: ("/" not in key, key)):
        yield f"{amount_text(name, requests[name])} {name}"
