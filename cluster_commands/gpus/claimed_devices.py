"""Devices of dynamic resource allocation: ResourceSlices offer them, ResourceClaims take them.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.profile.profile import Profile

_MAX_COUNT = 10**6  # of devices in one request; API servers allow fewer
# A device is known by its driver, its pool and its name.
_Key = tuple[str, str, str]


class Device(NamedTuple):
    """A device of a node.

    `card` is what it is a part of: the counter sets that it draws on, if it is a partition, else
    the device itself.
    """

    driver: str
    node: str
    card: str
    model: str


class Claim(NamedTuple):
    """An allocated claim: the devices that it holds, and the pods for which it is reserved."""

    namespace: str
    name: str
    devices: tuple[Device, ...]
    pods: tuple[str, ...]


def offered_devices(slices: Iterable[Mapping[str, Any]], profile: Profile) -> Mapping[_Key, Device]:
    """The devices that the slices of GPU drivers offer; of each pool its newest generation.

    Devices that several nodes can use are left out.
    """
    newest: dict[tuple[str, str], tuple[int, list[Mapping[str, Any]]]] = {}
    for item in slices:
        spec = as_object(item.get("spec"))
        pool = as_object(spec.get("pool"))
        driver = as_text(spec.get("driver"))
        if not is_gpu_driver(driver, profile):
            continue
        generation = pool.get("generation")
        generation = generation if isinstance(generation, int) else 0
        key = driver, as_text(pool.get("name"))
        known = newest.get(key)
        if known is None or known[0] < generation:
            newest[key] = known = (generation, [])
        if known[0] == generation:
            known[1].append(spec)
    found = {
        (driver, pool, as_text(device.get("name"))): _device(driver, pool, spec, device)
        for (driver, pool), (_, specs) in newest.items()
        for spec in specs
        for _, device in as_objects(spec.get("devices"))
    }
    return {key: device for key, device in found.items() if device.node}


def _device(driver: str, pool: str, spec: Mapping[str, Any], device: Mapping[str, Any]) -> Device:
    # Before version v1, what a device has was in `basic`.
    content = as_object(device.get("basic")) or device
    sets = [as_text(c.get("counterSet")) for _, c in as_objects(content.get("consumesCounters"))]
    attributes = as_object(content.get("attributes"))
    model = as_object(attributes.get("productName") or attributes.get(f"{driver}/productName"))
    name = "+".join(sorted(filter(None, sets))) or as_text(device.get("name"))
    node = as_text(spec.get("nodeName")) or as_text(content.get("nodeName"))
    return Device(driver, node, f"{pool}/{name}", as_text(model.get("string")))


def is_gpu_driver(name: str, profile: Profile) -> bool:
    """Whether `name`, of a driver or a device class, is known to be about GPUs."""
    resource = profile.resource(f"{DEVICE_CLASS_PREFIX}{name}")
    return resource is not None and resource.vendor != "other"


def allocated_claims(
    claims: Iterable[Mapping[str, Any]], devices: Mapping[_Key, Device]
) -> list[Claim]:
    """The claims that hold at least one of `devices`."""
    found = []
    for item in claims:
        metadata, status = as_object(item.get("metadata")), as_object(item.get("status"))
        results = as_object(as_object(status.get("allocation")).get("devices")).get("results")
        held = (
            devices.get(
                (as_text(r.get("driver")), as_text(r.get("pool")), as_text(r.get("device")))
            )
            for _, r in as_objects(results)
            if r.get("adminAccess") is not True  # it looks at devices and takes none
        )
        taken = tuple(device for device in held if device is not None)
        if taken:
            pods = as_objects(status.get("reservedFor"))
            names = tuple(as_text(p.get("name")) for _, p in pods if p.get("resource") == "pods")
            name, namespace = as_text(metadata.get("name")), as_text(metadata.get("namespace"))
            found.append(Claim(namespace, name, taken, names))
    return found


def waiting_devices(claim: Mapping[str, Any], profile: Profile) -> Mapping[str, int]:
    """The devices of GPU classes that a claim asks for, by class; empty once it is allocated."""
    waiting: dict[str, int] = {}
    if as_object(claim.get("status")).get("allocation"):
        return waiting
    devices = as_object(as_object(claim.get("spec")).get("devices"))
    for _, request in as_objects(devices.get("requests")):
        exact = as_object(request.get("exactly")) or request  # as it was before version v1
        name, count = as_text(exact.get("deviceClassName")), exact.get("count", 1)
        if is_gpu_driver(name, profile) and isinstance(count, int):
            waiting[name] = waiting.get(name, 0) + min(max(count, 0), _MAX_COUNT)
    return waiting
