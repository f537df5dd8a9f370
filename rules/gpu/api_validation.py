"""Which amounts of a device the API server refuses in a container, before it asks a webhook.

Source: Kubernetes, `pkg/apis/core/validation/validation.go`; the tests ask a real API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.quantity import Malformed, Quantity, parse


def api_refuses_amounts(name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> bool:
    """Whether a container with these amounts of the device `name` is refused for them.

    Names must have a domain, amounts must be whole once rounded up to thousandths, and a
    request must have a limit that equals it.
    """
    if "/" not in name or name.startswith("requests."):
        return True
    given = [parse(amounts[name]) for amounts in (limits, requests) if name in amounts]
    if any(api_refuses_count(amount) for amount in given):
        return True
    if name not in requests:
        return False
    rounded = {amount.thousandths for amount in given if isinstance(amount, Quantity)}
    return name not in limits or len(rounded) > 1


def api_refuses_count(amount: object) -> bool:
    """Whether the API server refuses `amount` for a number of devices; not what is unfilled."""
    if isinstance(amount, Quantity):
        return amount.nano < 0 or not amount.accepted_as_integer
    return isinstance(amount, Malformed)
