"""Devices that drivers offer by ResourceSlices.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from cluster_commands.gpus.pod_requests import amount_of
from cluster_commands.gpus.shares import Amount
from rules.base.json_access import as_object, as_objects, as_text
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.profile.profile import Profile

DeviceKey: TypeAlias = tuple[str, str, str]
"""A device is known by its driver, its pool and its name."""
_MEMORY = "memory"  # as NVIDIA's driver calls this counter
_LEAST_PART = Decimal("0.01")


class Device(NamedTuple):
    """A device of a node.

    - `card` is what it is a part of: the counter sets that it draws on, if it is a partition, else
      the device itself. `part` is how much of the card's memory that is.
    - `capacity` is what several claims can divide among themselves, in units of 1e-9; empty if one
      claim has the whole device.
    - `is_tainted`: claims get it only if they tolerate that, such as a device that is not healthy.
    """

    driver: str
    node: str
    card: str
    model: str
    part: Amount
    capacity: Mapping[str, int]
    is_tainted: bool


def offered_devices(
    slices: Iterable[Mapping[str, Any]], profile: Profile
) -> Mapping[DeviceKey, Device]:
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
    found: dict[DeviceKey, Device] = {}
    for (driver, pool_name), (_, specs) in newest.items():
        memory = _memory_by_counter_set(specs)
        for spec in specs:
            for _, raw in as_objects(spec.get("devices")):
                device = _device(driver, pool_name, spec, raw, memory)
                if device.node:
                    found[driver, pool_name, as_text(raw.get("name"))] = device
    return found


class DriverCards(NamedTuple):
    """The cards of a driver; `usable` are those with a device that is not tainted."""

    offered: set[str]
    usable: set[str]


def cards_by_driver(devices: Iterable[Device]) -> Mapping[str, DriverCards]:
    """The cards of which `devices` are parts, by driver: two drivers may use the same names."""
    found: dict[str, DriverCards] = {}
    for device in devices:
        cards = found.setdefault(device.driver, DriverCards(set(), set()))
        cards.offered.add(device.card)
        if not device.is_tainted:
            cards.usable.add(device.card)
    return found


def is_gpu_driver(name: str, profile: Profile) -> bool:
    """Whether `name`, of a driver or a device class, is known to be about GPUs."""
    resource = profile.resource(f"{DEVICE_CLASS_PREFIX}{name}")
    return resource is not None and resource.vendor != "other"


def part_of(some: int, whole: int) -> Amount:
    """How much `some` is of `whole`, in hundredths: 1 is all of it, and the least is 0.01.

    1 also if the whole is unknown.
    """
    if not 0 < some < whole:
        return 1
    return max(round(Decimal(some) / Decimal(whole), 2), _LEAST_PART)


def _device(
    driver: str,
    pool: str,
    spec: Mapping[str, Any],
    device: Mapping[str, Any],
    memory: Mapping[str, int],
) -> Device:
    # Before version v1, what a device has was in `basic`.
    content = as_object(device.get("basic")) or device
    consumed = {
        as_text(drawn.get("counterSet")): _memory_of(drawn)
        for _, drawn in as_objects(content.get("consumesCounters"))
    }
    attributes = as_object(content.get("attributes"))
    model = as_object(attributes.get("productName") or attributes.get(f"{driver}/productName"))
    name = "+".join(sorted(filter(None, consumed))) or as_text(device.get("name"))
    node = as_text(spec.get("nodeName")) or as_text(content.get("nodeName"))
    whole = sum(memory.get(counter_set, 0) for counter_set in consumed)
    is_shared = content.get("allowMultipleAllocations") is True
    capacity = as_object(content.get("capacity")) if is_shared else {}
    taints = (taint.get("effect") for _, taint in as_objects(content.get("taints")))
    return Device(
        driver,
        node,
        f"{pool}/{name}",
        as_text(model.get("string")),
        part_of(sum(consumed.values()), whole),
        {name: amount_of(as_object(value).get("value")) for name, value in capacity.items()},
        any(effect in {"NoSchedule", "NoExecute"} for effect in taints),
    )


def _memory_by_counter_set(specs: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """The memory of the cards of a pool whose partitions it offers."""
    return {
        as_text(found.get("name")): _memory_of(found)
        for spec in specs
        for _, found in as_objects(spec.get("sharedCounters"))
    }


def _memory_of(holder: Mapping[str, Any]) -> int:
    counter = as_object(as_object(holder.get("counters")).get(_MEMORY))
    return amount_of(counter.get("value"))
