"""Which device classes of claims have GPUs."""

from __future__ import annotations

from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import Inventory
from rules.inventory.records import DeviceClass
from rules.profile.profile import Profile

# The vendor of classes that a profile names by a pattern only: they may have any devices.
OTHER = "other"


def is_gpu_class(name: str, profile: Profile, inventory: Inventory) -> bool:
    """Whether `profile` knows the class, or the resource that its DeviceClass names."""
    known = inventory.find(DeviceClass, name)
    names = (f"{DEVICE_CLASS_PREFIX}{name}", known.extended_resource if known else "")
    return any(is_gpu_resource(name, profile) for name in names)


def is_gpu_resource(name: str, profile: Profile) -> bool:
    """Whether `profile` knows the resource, and not merely that it is some device class."""
    resource = profile.resource(name)
    return resource is not None and resource.vendor != OTHER
