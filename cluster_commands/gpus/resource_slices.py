"""Devices that drivers offer by ResourceSlices.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from cluster.gpus.claims import Device, DevicePool
from rules.base.json_access import as_object, as_objects, as_text
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.profile.profile import Profile

DeviceKey: TypeAlias = tuple[str, str, str]
"""A device is known by its driver, its pool and its name."""


class Offer(NamedTuple):
    """The devices that drivers offer; and the pools of which something is not known, and why."""

    devices: Mapping[DeviceKey, Device]
    unknown: tuple[str, ...] = ()


def offered_devices(slices: Iterable[Mapping[str, Any]], profile: Profile) -> Offer:
    """The devices that the slices of GPU drivers offer; of each pool its newest generation.

    The scheduler allocates no device of a pool whose slices it has not all seen, as while a driver
    writes them, or of which two devices have the same name. Devices that several nodes can use are
    left out.
    Source: Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable`,
    `GatherPools`.
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
    found: dict[DeviceKey, Device] = {}
    unknown = []
    for (driver, pool_name), (_, specs) in sorted(newest.items()):
        why = _why_unusable(specs)
        if why:
            unknown.append(
                f"pool {pool_name!r} of the driver {driver} {why}: the scheduler allocates none of "
                "its devices"
            )
        devices = DevicePool(driver, pool_name, specs)
        for spec in specs:
            for _, raw in as_objects(spec.get("devices")):
                device = devices.device(spec, raw)
                if device.node:
                    usable = device._replace(is_unavailable=device.is_unavailable or bool(why))
                    found[driver, pool_name, as_text(raw.get("name"))] = usable
    return Offer(found, tuple(unknown))


def _why_unusable(specs: list[Mapping[str, Any]]) -> str:
    """Why the scheduler allocates no device of a pool with these slices; empty if it does."""
    count = as_object(specs[0].get("pool")).get("resourceSliceCount")
    if count != len(specs):
        return f"has {len(specs)} of its {count} ResourceSlices, so its devices are not all known"
    names = Counter(
        as_text(raw.get("name")) for spec in specs for _, raw in as_objects(spec.get("devices"))
    )
    twice = next((name for name, times in names.items() if times > 1), None)
    return "" if twice is None else f"has the device {twice!r} twice"


class DriverCards(NamedTuple):
    """The cards of a driver; `usable` are those with a device that is available."""

    offered: set[str]
    usable: set[str]


def cards_by_driver(devices: Iterable[Device]) -> Mapping[str, DriverCards]:
    """The cards of which `devices` are parts, by driver: two drivers may use the same names."""
    found: dict[str, DriverCards] = {}
    for device in devices:
        cards = found.setdefault(device.driver, DriverCards(set(), set()))
        cards.offered.add(device.card)
        if not device.is_unavailable:
            cards.usable.add(device.card)
    return found


def is_gpu_driver(name: str, profile: Profile) -> bool:
    """Whether `name`, of a driver or a device class, is known to be about GPUs."""
    resource = profile.resource(f"{DEVICE_CLASS_PREFIX}{name}")
    return resource is not None and resource.vendor != "other"
