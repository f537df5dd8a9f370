"""The part of the capacity of a device that a request takes, by the policies of the device.

Source: Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating`,
`consumable_capacity.go` of 0.36.6 and 0.37.2, and the types of resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.why.devices.errors import NotKnownError
from cluster.why.devices.pools import Device
from cluster.why.devices.requests import Request
from rules.base.json_values import as_object
from rules.base.quantity import Quantity, parse

_NANO = 10**9
_MAX_AMOUNT = (2**63 - 1) * _NANO


def asked_of(device: Device, request: Request) -> Mapping[str, int] | None:
    """Return how much of each capacity of `device` the request takes, in units of 1e-9.

    None if the device lacks one, or does not give that much of one. Raises NotKnownError.
    """
    wanted = request.capacity
    if not wanted.keys() <= device.amounts.keys():
        return None
    found = {}
    for name, raw in device.amounts.items():
        amount = amount_given(device, raw, wanted.get(name))
        if amount is None:
            return None
        found[name] = amount
    return found


def is_enough(device: Device, asked: Mapping[str, int] | None, used: Mapping[str, int]) -> bool:
    """Return whether a device has what is `asked` of it, beside what is `used`."""
    return asked is not None and all(
        asked[name] + used.get(name, 0) <= nano_of(total_of(raw))
        for name, raw in device.amounts.items()
    )


def nano_of(value: object) -> int:
    """A quantity in units of 1e-9. Raises NotKnownError for a value that is none."""
    parsed = parse(value)
    if isinstance(parsed, Quantity):
        return parsed.nano
    raise NotKnownError(f"the quantity {value!r}")


def total_of(capacity: object) -> object:
    """The quantity of a capacity of a device; before version v1beta1 it was the capacity itself."""
    return capacity.get("value") if isinstance(capacity, dict) else capacity


def amount_given(device: Device, capacity: object, wanted: object) -> int | None:
    """Return what is taken of a `capacity` of which `wanted` is asked, None if nothing is.

    None if the device does not give that much. Raises NotKnownError.
    """
    policy = as_object(as_object(capacity).get("requestPolicy"))
    default = nano_of(policy["default"]) if "default" in policy else None
    limits, values = as_object(policy.get("validRange")), policy.get("validValues")
    if wanted is None:
        amount = nano_of(total_of(capacity)) if default is None else default
    else:
        amount = nano_of(wanted)
    if limits:
        allowed = _Range(device, limits)
        amount = amount if wanted is None else allowed.round_up(amount)
        return amount if amount == default or amount in allowed else None
    if isinstance(values, list) and values:
        known = [*map(nano_of, values)]  # in ascending order
        if wanted is not None:
            amount = next((value for value in known if amount <= value), amount)
        return amount if amount == default or amount in known else None
    return amount


class _Range:
    """The `validRange` of a capacity of `device`. Raises NotKnownError."""

    def __init__(self, device: Device, limits: Mapping[str, Any]) -> None:
        self._device = device
        self._min = nano_of(limits.get("min"))
        self._max = nano_of(limits["max"]) if "max" in limits else None
        self._step = nano_of(limits["step"]) if "step" in limits else None
        if self._step is not None:
            self._check(self._min, self._step, self._step - _NANO)

    def round_up(self, amount: int) -> int:
        """The amount that is given for `amount`, if the device gives it."""
        if amount <= self._min or self._step is None:
            return max(amount, self._min)
        self._check(amount)
        rounded = self._min - (self._min - amount) // self._step * self._step
        self._check(rounded)
        return rounded

    def __contains__(self, amount: int) -> bool:
        """Return whether the device gives `amount`."""
        if self._max is not None and amount > self._max:
            return False
        if self._step is None:
            return True
        self._check(amount)
        return (amount - self._min) % self._step == 0

    def _check(self, *amounts: int) -> None:
        """Raise NotKnownError for fractions and for too much: releases count these differently."""
        if any(amount % _NANO or not 0 <= amount <= _MAX_AMOUNT for amount in amounts):
            name = self._device.name
            raise NotKnownError(f"which amounts of its capacity the device {name} gives")
