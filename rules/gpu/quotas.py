"""The keys by which quotas limit the GPUs that a cluster offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from rules.base.json_access import display
from rules.base.words import matches_any
from rules.gpu.claims import is_gpu_class, is_gpu_resource
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import Inventory
from rules.inventory.records import DeviceClass, NodeGroup, ResourceQuota
from rules.objects.quota import LIMITS, REQUESTS
from rules.profile.profile import Profile

OF_CLASS = ".deviceclass.resource.k8s.io/devices"
CLAIMS = "count/resourceclaims.resource.k8s.io"
MOST_OFFERS = 300


def offers(inventory: Inventory, profile: Profile) -> Mapping[str, tuple[str, ...]]:
    """By what pods get GPUs, for a message: the keys of quotas that limit it.

    Empty if there are more than MOST_OFFERS: a rule compares all of them with every quota.
    """
    return inventory.once(_offers, profile)


def gpu_key(quota: ResourceQuota, profile: Profile, inventory: Inventory) -> str:
    """The first key of the quota that limits GPUs; empty if there is none."""
    for key in quota.hard:
        device_class = key.removesuffix(OF_CLASS)
        if device_class != key and is_gpu_class(device_class, profile, inventory):
            return key
        if key.startswith(REQUESTS) and is_gpu_resource(key.removeprefix(REQUESTS), profile):
            return key
    return ""


def _offers(inventory: Inventory, profile: Profile) -> Mapping[str, tuple[str, ...]]:
    found = list(islice(_each_offer(inventory, profile), MOST_OFFERS + 1))
    return dict(found) if len(found) <= MOST_OFFERS else {}


def _each_offer(inventory: Inventory, profile: Profile) -> Iterator[tuple[str, tuple[str, ...]]]:
    groups = inventory.all_in(NodeGroup, None).values()
    offered = {name for group in groups for name in group.resources}
    for name in sorted(offered):
        resource = profile.resource(name)
        if resource is None or offered.isdisjoint(resource.companions):
            is_counted = matches_any(profile.limit_quotas, name)
            keys = (f"{REQUESTS}{name}", *((f"{LIMITS}{name}",) if is_counted else ()))
            yield display(name), keys
    for name, known in sorted(inventory.all_in(DeviceClass, None).items()):
        if is_gpu_class(name, profile, inventory):
            stands_for = (f"{DEVICE_CLASS_PREFIX}{name}", known.extended_resource)
            keys = (f"{name}{OF_CLASS}", *(f"{REQUESTS}{each}" for each in stands_for), CLAIMS)
            yield f"the device class {display(name)}", keys
