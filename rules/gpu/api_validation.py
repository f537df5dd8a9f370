"""Which amounts of a device the API server refuses in a container.

It validates an object before it calls validating webhooks. Source: Kubernetes,
`pkg/apis/core/validation/validation.go`; the tests compare with a real API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.quantity import Malformed, Quantity, parse


def api_refuses_amounts(name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> bool:
    """Whether the API server refuses a container for its amounts of the device `name`.

    `limits` and `requests` are the container's, as written. The name must have a domain. The
    amounts must be whole after rounding up to thousandths. A request needs a limit that equals it.
    """
    if api_refuses_name(name):
        return True
    quantities = [parse(amounts[name]) for amounts in (limits, requests) if name in amounts]
    if any(api_refuses_count(amount) for amount in quantities):
        return True
    if name not in requests:
        return False
    rounded = {amount.thousandths for amount in quantities if isinstance(amount, Quantity)}
    return name not in limits or len(rounded) > 1


def api_refuses_name(name: str) -> bool:
    """Whether the API server refuses `name` as that of a device, in a container or a LimitRange."""
    return "/" not in name or name.startswith("requests.")


def api_refuses_count(amount: object) -> bool:
    """Whether the API server refuses `amount`, a result of `parse`, as a number of devices.

    False for a placeholder: its value is not known yet.
    """
    if isinstance(amount, Quantity):
        return amount.nano < 0 or not amount.accepted_as_integer
    return isinstance(amount, Malformed)
