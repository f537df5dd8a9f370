"""The traits that a container's resources give a pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.quantity import Quantity
from rules.base.traits import (
    ALIYUN_PREFIX,
    CLAIM,
    GPU_RESOURCE,
    NVIDIA_CARD,
    ODD_AMOUNT,
    OTHER_GPU_RESOURCE,
    SEVERAL_GPUS,
    SHARE,
    UNKNOWN_RESOURCE,
)
from rules.gpu.devices import NATIVE, Device

_ONE = 10**9  # in the unit of `Quantity.nano`


def resource_traits(
    limits: Mapping[str, Any], requests: Mapping[str, Any], known: Mapping[str, Device], claims: Any
) -> int:
    """The traits of a container with these resources and claims; `known` are its `devices`."""
    traits = CLAIM if claims else 0
    if len(known) > 1:
        traits |= SEVERAL_GPUS
    for name in {*limits, *requests} - NATIVE:
        traits |= _single_resource_traits(name, known.get(name))
    return traits


def _single_resource_traits(name: str, device: Device | None) -> int:
    traits = SHARE if name.startswith(ALIYUN_PREFIX) else 0
    if device is None:
        return traits | UNKNOWN_RESOURCE
    traits |= GPU_RESOURCE
    if name != NVIDIA_CARD:
        traits |= OTHER_GPU_RESOURCE
    if device.resource.sharing == "share":
        traits |= SHARE
    if not device.is_plain_count:
        traits |= ODD_AMOUNT
    for amount in (device.limit, device.request):
        if isinstance(amount, Quantity) and amount.nano > _ONE:
            traits |= SEVERAL_GPUS
    return traits
