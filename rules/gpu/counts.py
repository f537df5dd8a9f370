"""How many whole GPUs a container holds."""

from __future__ import annotations

from rules.gpu.devices import devices
from rules.objects.container import Container

_DEVICE = "device"


def whole_gpus(container: Container) -> int | None:
    """The number of whole cards that `container` requests, 0 if it requests none.

    None if the manifest does not tell: an amount is a placeholder or invalid, or the container has
    a resource claim, a part of a card, or a MIG device.
    """
    if container.claims or container.is_fraction_target:
        return None
    total = 0
    for device in devices(container).values():
        if not device.is_requested:
            continue
        resource = device.resource
        if not device.is_plain_count or resource.unit != _DEVICE or resource.sharing != "whole":
            return None
        total += device.limit.value  # type: ignore[union-attr]  # a plain count is a Quantity
    return total
