"""How quotas, and the queues of Kueue, limit GPUs."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object, as_objects, as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.words import matches_any
from rules.gpu.claims import is_gpu_class, is_gpu_resource
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import DeviceClass, Inventory, NodeGroup, ResourceQuota
from rules.objects.kubernetes_objects import LIMITS, REQUESTS, KubernetesObject
from rules.profile.profile import Profile

OF_CLASS = ".deviceclass.resource.k8s.io/devices"
CLAIMS = "count/resourceclaims.resource.k8s.io"
MOST_OFFERS = 300


def offers(inventory: Inventory, profile: Profile) -> Mapping[str, tuple[str, ...]]:
    """By what pods get GPUs, for a message: the keys of quotas that limit it.

    Empty if there are more than MOST_OFFERS: a rule compares all of them with every quota.
    """
    return inventory.once(_offers, profile)


def counts_claims(key: str) -> bool:
    """Whether Kubernetes counts ResourceClaims by the key, which it never does under a scope."""
    return key == CLAIMS or key.endswith(OF_CLASS)


def counting_keys(quota: ResourceQuota) -> Iterator[str]:
    """The keys of the quota, without those of claims if it has scopes."""
    return (key for key in quota.hard if not (quota.scopes and counts_claims(key)))


def gpu_key(quota: ResourceQuota, profile: Profile, inventory: Inventory) -> str:
    """The first key of the quota that limits GPUs; empty if there is none."""
    for key in counting_keys(quota):
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


class Limit(NamedTuple):
    """How many devices a quota allows, and its name."""

    value: int
    name: str


def smallest_quota(inventory: Inventory, namespace: str, resource: str) -> Limit | None:
    """The smallest limit of the GPU resource in the quotas that count every pod; None if unknown.

    The API server rounds up to thousandths before it stores a quota, and counts whole devices.
    """
    limits = [
        Limit(amount.thousandths // 1000, name)
        for name, quota in inventory.all_in(ResourceQuota, namespace).items()
        if not quota.scopes
        and isinstance(amount := parse(quota.hard.get(f"requests.{resource}", "")), Quantity)
    ]
    return min(limits, default=None)


AMOUNTS = ("nominalQuota", "borrowingLimit", "lendingLimit")


class QueueAmount(NamedTuple):
    """An amount of a resource in a flavor."""

    path: Path
    resource: str
    value: Any


def covered_resources(queue: KubernetesObject) -> Iterator[tuple[Path, str]]:
    """The names in `coveredResources` and in the quotas of flavors, with their paths."""
    for path, group in _groups(queue):
        covered = group.get("coveredResources")
        for index, name in enumerate(covered if isinstance(covered, list) else ()):
            yield (*path, "coveredResources", index), as_text(name)
        for place, resource in _resources(group, path):
            yield (*place, "name"), as_text(resource.get("name"))


def queue_amounts(queue: KubernetesObject) -> Iterator[QueueAmount]:
    """Every amount of every resource, in the order of the manifest."""
    for path, group in _groups(queue):
        for place, resource in _resources(group, path):
            for field in AMOUNTS:
                if resource.get(field) is not None:
                    name = as_text(resource.get("name"))
                    yield QueueAmount((*place, field), name, resource[field])


def _groups(queue: KubernetesObject) -> Iterator[tuple[Path, Any]]:
    listed = as_object(queue.raw.get("spec")).get("resourceGroups")
    for index, group in as_objects(listed):
        yield (*queue.path, "spec", "resourceGroups", index), group


def _resources(group: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    for index, flavor in as_objects(group.get("flavors")):
        for position, resource in as_objects(flavor.get("resources")):
            yield (*path, "flavors", index, "resources", position), resource
