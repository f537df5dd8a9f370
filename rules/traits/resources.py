"""The traits that a container's resources give a pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.gpu.devices import NATIVE, Device, parse_device
from rules.profile.profile import Profile
from rules.traits.bits import (
    ALIYUN_PREFIX,
    CLAIM,
    GPU_RESOURCE,
    ODD_AMOUNT,
    SHARE,
    UNKNOWN_RESOURCE,
)


def resource_traits(
    limits: Mapping[str, Any], requests: Mapping[str, Any], claims: Any, profile: Profile
) -> int:
    """The traits of a container with these resources and claims."""
    traits = CLAIM if claims else 0
    if not (NATIVE.issuperset(limits) and NATIVE.issuperset(requests)):
        for name in {*limits, *requests} - NATIVE:
            traits |= _single_resource_traits(name, parse_device(name, limits, requests, profile))
    return traits


def _single_resource_traits(name: str, device: Device | None) -> int:
    traits = SHARE if name.startswith(ALIYUN_PREFIX) else 0
    if device is None:
        return traits | UNKNOWN_RESOURCE
    if device.resource.sharing == "share":
        traits |= SHARE
    return traits | GPU_RESOURCE if device.is_plain_count else traits | GPU_RESOURCE | ODD_AMOUNT
