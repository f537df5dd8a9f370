"""Devices that ResourceSlices offer, and those that ResourceClaims have or wait for.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.pod_requests import amount_of
from cluster.accounting.shares import Amount
from cluster.source.objects import POD_GROUPS, group_name
from rules.base.claim_requests import alternatives_of
from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.profile.profile import Profile

_MEMORY = "memory"  # as NVIDIA's driver calls this counter
_LEAST_PART = Decimal("0.01")
_EFFECTS = ("NoSchedule", "NoExecute")


class Device(NamedTuple):
    """A device of a node.

    - `card` is what it is a part of: the counter sets that it draws on, if it is a partition; the
      card, if that is passed through to virtual machines; else the device itself.
    - `part`: how much of the card's memory that is.
    - `capacity` is what several claims can divide among themselves, in units of 1e-9; empty if one
      claim has the whole device.
    - `is_unavailable`: claims get it only if they tolerate its taint, such as a device that is not
      healthy; or the scheduler allocates nothing of its pool.
    """

    driver: str
    node: str
    card: str
    model: str
    part: Amount
    capacity: Mapping[str, int]
    is_unavailable: bool


class DevicePool:
    """The devices of one pool, which may be parts of one card, or ways to it."""

    def __init__(self, driver: str, name: str, specs: list[Mapping[str, Any]]) -> None:
        self._driver, self._name = driver, name
        self._memory = _memory_by_counter_set(specs)
        self._card_by_bus_id = {
            self._bus_id(raw): as_text(raw.get("name"))
            for spec in specs
            for _, raw in as_objects(spec.get("devices"))
            if self._attribute(raw, "type") == "gpu"
        }

    def device(self, spec: Mapping[str, Any], raw: Mapping[str, Any]) -> Device:
        """A device of a slice with this `spec`."""
        content = content_of(raw)
        consumed = {
            as_text(drawn.get("counterSet")): _memory_of(drawn)
            for _, drawn in as_objects(content.get("consumesCounters"))
        }
        card = "+".join(sorted(filter(None, consumed))) or self._passed_card(raw)
        whole = sum(self._memory.get(counter_set, 0) for counter_set in consumed)
        is_shared = content.get("allowMultipleAllocations") is True
        capacity = as_object(content.get("capacity")) if is_shared else {}
        taints = as_objects(content.get("taints"))
        return Device(
            driver=self._driver,
            node=as_text(spec.get("nodeName")) or as_text(content.get("nodeName")),
            card=f"{self._name}/{card or as_text(raw.get('name'))}",
            model=self._attribute(raw, "productName"),
            part=part_of(sum(consumed.values()), whole),
            capacity={
                name: amount_of(as_object(value).get("value")) for name, value in capacity.items()
            },
            is_unavailable=any(as_text(taint.get("effect")) in _EFFECTS for _, taint in taints),
        )

    def _passed_card(self, raw: Mapping[str, Any]) -> str:
        """The card that virtual machines get by a device, if it is offered to containers too.

        Source: NVIDIA/k8s-dra-driver-gpu cmd/gpu-kubelet-plugin/deviceinfo.go, `VfioDeviceInfo`
        """
        is_passed = self._attribute(raw, "type") == "vfio"
        return self._card_by_bus_id.get(self._bus_id(raw), "") if is_passed else ""

    def _bus_id(self, raw: Mapping[str, Any]) -> str:
        return self._attribute(raw, "resource.kubernetes.io/pciBusID") or self._attribute(
            raw, "pcieBusID"
        )

    def _attribute(self, raw: Mapping[str, Any], name: str) -> str:
        """An attribute of a device, which may be qualified by the name of the driver."""
        attributes = as_object(content_of(raw).get("attributes"))
        found = as_object(attributes.get(name) or attributes.get(f"{self._driver}/{name}"))
        return as_text(found.get("string"))


def content_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a device; before version v1, it was in `basic`."""
    return as_object(raw.get("basic")) or raw


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


def part_of(some: int, whole: int) -> Amount:
    """Return how much `some` is of `whole`, in hundredths: 1 is all of it, and the least is 0.01.

    1 also if the whole is unknown.
    """
    if not 0 < some < whole:
        return 1
    return max(round(Decimal(some) / Decimal(whole), 2), _LEAST_PART)


# Devices that drivers offer by ResourceSlices.

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
    """Return why the scheduler uses no device of a pool with these slices; empty if it does."""
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
    """Return whether `name`, of a driver or a device class, is known to be about GPUs."""
    resource = profile.resource(f"{DEVICE_CLASS_PREFIX}{name}")
    return resource is not None and resource.vendor != "other"


# Devices that ResourceClaims have, or wait for.

_MAX_COUNT = 10**6  # of devices in one request; API servers allow fewer


class HeldDevice(NamedTuple):
    """A device of a claim, and how much of the device's card the claim has."""

    device: Device
    part: Amount


class Claim(NamedTuple):
    """An allocated claim: the devices that it holds, and the pods for which it is reserved.

    `groups`: the PodGroups of Kubernetes for which it is reserved, whose pods share it.
    `has_other_users`: it is reserved for something else that is no pod. `since`: when it got the
    devices, or was made if that is not known.
    """

    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]
    pods: tuple[str, ...]
    has_other_users: bool
    since: str = ""
    groups: tuple[str, ...] = ()


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
            users = [user for _, user in as_objects(status.get("reservedFor"))]
            pods = tuple(as_text(u.get("name")) for u in users if u.get("resource") == "pods")
            groups = groups_of(users)
            name, namespace = as_text(metadata.get("name")), as_text(metadata.get("namespace"))
            found.append(
                Claim(
                    namespace=namespace,
                    name=name,
                    devices=taken,
                    pods=pods,
                    has_other_users=len(users) > len(pods) + len(groups),
                    groups=groups,
                    since=as_text(as_object(status.get("allocation")).get("allocationTimestamp"))
                    or as_text(metadata.get("creationTimestamp")),
                )
            )
    return found


def groups_of(users: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of the PodGroups of Kubernetes among the `users` for which a claim is reserved."""
    return tuple(
        as_text(user.get("name"))
        for user in users
        if user.get("resource") == "podgroups" and user.get("apiGroup") == POD_GROUPS.group
    )


def claims_by_group(pod: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The PodGroup of Kubernetes that a pod is in, with each of its claims; empty if it is in none.

    Source: Kubernetes, IsReservedForPod in
    `staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go` of 1.37.2.
    """
    group = group_name(pod)
    return tuple((group, name) for _, name in claim_names(pod) if name) if group else ()


def claim_names(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each claim of the pod by its entry in the spec; without a name if it is not made yet."""
    statuses = {
        as_text(one.get("name")): as_text(one.get("resourceClaimName"))
        for _, one in as_objects(as_object(pod.get("status")).get("resourceClaimStatuses"))
    }
    for _, claim in as_objects(as_object(pod.get("spec")).get("resourceClaims")):
        entry = as_text(claim.get("name"))
        yield entry, as_text(claim.get("resourceClaimName")) or statuses.get(entry, "")


def waiting_devices(claim: Mapping[str, Any], profile: Profile) -> Mapping[str, int]:
    """The devices of GPU classes that a claim asks for, by class; empty once it is allocated.

    Of a request with alternatives, only the first one counts: the scheduler tries it first.
    """
    waiting: dict[str, int] = {}
    if as_object(claim.get("status")).get("allocation"):
        return waiting
    devices = as_object(as_object(claim.get("spec")).get("devices"))
    for _, request in as_objects(devices.get("requests")):
        wanted = alternatives_of(request)[0]
        name, count = as_text(wanted.get("deviceClassName")), wanted.get("count", 1)
        if is_gpu_driver(name, profile) and isinstance(count, int) and not _only_watches(wanted):
            waiting[name] = waiting.get(name, 0) + min(max(count, 0), _MAX_COUNT)
    return waiting


def _key(result: Mapping[str, Any]) -> DeviceKey:
    return as_text(result.get("driver")), as_text(result.get("pool")), as_text(result.get("device"))


def _only_watches(request: Mapping[str, Any]) -> bool:
    """Return whether a request or its result is for an administrator's access, without a device."""
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


def own_devices(claim: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Driver, pool and name of each device that a claim has for itself."""
    allocation = as_object(as_object(claim.get("status")).get("allocation"))
    for _, result in as_objects(as_object(allocation.get("devices")).get("results")):
        is_shared = result.get("adminAccess") is True or result.get("shareID")
        if not is_shared and not result.get("consumedCapacity"):
            driver, pool = as_text(result.get("driver")), as_text(result.get("pool"))
            yield driver, pool, as_text(result.get("device"))
