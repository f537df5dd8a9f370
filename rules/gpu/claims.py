"""Which device classes of claims have GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import Inventory
from rules.inventory.records import DeviceClass
from rules.profile.profile import Profile
from rules.profile.records import Resource

# The vendor of classes that a profile names by a pattern only: they may have any devices.
OTHER = "other"


def is_gpu_class(name: str, profile: Profile, inventory: Inventory) -> bool:
    """Whether `profile` knows the class, or the resource that its DeviceClass names."""
    return any(_is_gpu(resource) for resource in _resources(name, profile, inventory))


def is_partition_class(name: str, profile: Profile, inventory: Inventory) -> bool:
    """Whether the devices of the class are parts of cards, of which a node has many."""
    resources = _resources(name, profile, inventory)
    return any(resource is not None and resource.sharing == "partition" for resource in resources)


def is_gpu_resource(name: str, profile: Profile) -> bool:
    """Whether `profile` knows the resource, and not merely that it is some device class."""
    return _is_gpu(profile.resource(name))


def _resources(name: str, profile: Profile, inventory: Inventory) -> Iterator[Resource | None]:
    """What `profile` knows of the class `name`, and of the resource that its DeviceClass names."""
    yield profile.resource(f"{DEVICE_CLASS_PREFIX}{name}")
    known = inventory.find(DeviceClass, name)
    if known is not None:
        yield profile.resource(known.extended_resource)


def _is_gpu(resource: Resource | None) -> bool:
    return resource is not None and resource.vendor != OTHER
