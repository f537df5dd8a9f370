"""The devices of one pool, which several ResourceSlices may offer.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from cluster.gpus.pod_requests import amount_of
from cluster.gpus.shares import Amount
from rules.base.json_access import as_object, as_objects, as_text

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
            if self._text(raw, "type") == "gpu"
        }

    def device(self, spec: Mapping[str, Any], raw: Mapping[str, Any]) -> Device:
        """A device of a slice with this `spec`."""
        content = _content(raw)
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
            self._driver,
            as_text(spec.get("nodeName")) or as_text(content.get("nodeName")),
            f"{self._name}/{card or as_text(raw.get('name'))}",
            self._text(raw, "productName"),
            part_of(sum(consumed.values()), whole),
            {name: amount_of(as_object(value).get("value")) for name, value in capacity.items()},
            any(as_text(taint.get("effect")) in _EFFECTS for _, taint in taints),
        )

    def _passed_card(self, raw: Mapping[str, Any]) -> str:
        """The card that virtual machines get by a device, if it is offered to containers too.

        Source: NVIDIA/k8s-dra-driver-gpu cmd/gpu-kubelet-plugin/deviceinfo.go, `VfioDeviceInfo`
        """
        is_passed = self._text(raw, "type") == "vfio"
        return self._card_by_bus_id.get(self._bus_id(raw), "") if is_passed else ""

    def _bus_id(self, raw: Mapping[str, Any]) -> str:
        return self._text(raw, "resource.kubernetes.io/pciBusID") or self._text(raw, "pcieBusID")

    def _text(self, raw: Mapping[str, Any], name: str) -> str:
        """An attribute of a device, which may be qualified by the name of the driver."""
        attributes = as_object(_content(raw).get("attributes"))
        found = as_object(attributes.get(name) or attributes.get(f"{self._driver}/{name}"))
        return as_text(found.get("string"))


def _content(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a device has: before version v1, that was in `basic`."""
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
    """How much `some` is of `whole`, in hundredths: 1 is all of it, and the least is 0.01.

    1 also if the whole is unknown.
    """
    if not 0 < some < whole:
        return 1
    return max(round(Decimal(some) / Decimal(whole), 2), _LEAST_PART)
