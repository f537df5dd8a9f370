"""Devices that ResourceClaims have, or wait for.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cluster.gpus.claims import Device, part_of
from cluster.gpus.pod_requests import amount_of
from cluster.gpus.shares import Amount
from cluster_commands.gpus.resource_slices import DeviceKey, is_gpu_driver
from rules.base.json_access import as_object, as_objects, as_text
from rules.profile.profile import Profile

_MAX_COUNT = 10**6  # of devices in one request; API servers allow fewer


class HeldDevice(NamedTuple):
    """A device of a claim, and how much of the device's card the claim has."""

    device: Device
    part: Amount


class Claim(NamedTuple):
    """An allocated claim: the devices that it holds, and the pods for which it is reserved."""

    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]
    pods: tuple[str, ...]


def allocated_claims(
    claims: Iterable[Mapping[str, Any]], devices: Mapping[DeviceKey, Device]
) -> list[Claim]:
    """The claims that hold at least one of `devices`."""
    found = []
    for item in claims:
        metadata, status = as_object(item.get("metadata")), as_object(item.get("status"))
        results = as_object(as_object(status.get("allocation")).get("devices")).get("results")
        taken = tuple(
            HeldDevice(device, _part(device, result))
            for _, result in as_objects(results)
            if (device := devices.get(_key(result))) is not None and not _only_watches(result)
        )
        if taken:
            pods = as_objects(status.get("reservedFor"))
            names = tuple(as_text(p.get("name")) for _, p in pods if p.get("resource") == "pods")
            name, namespace = as_text(metadata.get("name")), as_text(metadata.get("namespace"))
            found.append(Claim(namespace, name, taken, names))
    return found


def waiting_devices(claim: Mapping[str, Any], profile: Profile) -> Mapping[str, int]:
    """The devices of GPU classes that a claim asks for, by class; empty once it is allocated.

    Of alternatives the first counts, which the scheduler tries first.
    """
    waiting: dict[str, int] = {}
    if as_object(claim.get("status")).get("allocation"):
        return waiting
    devices = as_object(as_object(claim.get("spec")).get("devices"))
    for _, request in as_objects(devices.get("requests")):
        alternatives = [alternative for _, alternative in as_objects(request.get("firstAvailable"))]
        # Before version v1, what is in `exactly` was in the request itself.
        wanted = as_object(request.get("exactly")) or next(iter(alternatives), request)
        name, count = as_text(wanted.get("deviceClassName")), wanted.get("count", 1)
        if is_gpu_driver(name, profile) and isinstance(count, int) and not _only_watches(wanted):
            waiting[name] = waiting.get(name, 0) + min(max(count, 0), _MAX_COUNT)
    return waiting


def _key(result: Mapping[str, Any]) -> DeviceKey:
    return as_text(result.get("driver")), as_text(result.get("pool")), as_text(result.get("device"))


def _only_watches(request: Mapping[str, Any]) -> bool:
    """Whether a request or its result is for access as an administrator, which takes no device."""
    return request.get("adminAccess") is True


def _part(device: Device, result: Mapping[str, Any]) -> Amount:
    """The part of the card: all of the device, or what the claim consumes of its capacity."""
    consumed = as_object(result.get("consumedCapacity"))
    shares = [
        part_of(amount_of(consumed[name]), whole)
        for name, whole in device.capacity.items()
        if amount_of(consumed.get(name))
    ]
    return max(shares, default=1) * device.part
