"""The pods and claims that have a device for themselves, and devices that were given twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cluster.accounting.claims import is_gpu_driver, own_devices
from cluster.accounting.device_status import DeviceStatus
from cluster.accounting.passthrough import is_gpu
from reports.formats import some
from rules.base.json_values import as_object, as_text
from rules.profile.profile import Profile


class Holder(NamedTuple):
    """A pod, or a claim, that has a device."""

    namespace: str
    name: str


UNNAMED = Holder("", "")
"""One of a namespace that a reader may not see."""


class Device(NamedTuple):
    """A device. A driver (DRA) gives it to claims, or a device plugin to pods.

    `resource` is the name of the driver, or the resource; `place` is the pool, or the node; `name`
    is what the driver or the plugin calls it.
    """

    is_of_driver: bool
    resource: str
    place: str
    name: str


class GivenTwice(NamedTuple):
    """A device that several pods or claims have, each for itself. Drivers have others than GPUs.

    `since` is when the second of them got it; empty if that is not known.
    """

    device: Device
    holders: tuple[Holder, ...]
    is_gpu: bool
    since: str

    def __str__(self) -> str:
        kind = "claim" if self.device.is_of_driver else "pod"
        names = some(
            [
                f"a {kind} in another namespace"
                if holder == UNNAMED
                else f"{kind} {holder.namespace}/{holder.name}"
                for holder in self.holders
            ]
        )
        return f"{names} have {self.what}: gpuward doctor says what to do"

    @property
    def what(self) -> str:
        """Return which device it is, and since when."""
        device = f"{self.device.name} of {self.device.place} as {self.device.resource}"
        since = f" since {self.since}" if self.since else ""
        return f"the same device {device}{since}"


class DeviceHolders:
    """Collects the pods and claims that have a device for themselves.

    `profile` says which resources are GPUs.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        # Each holder once, in their order, and since when it has the device.
        self._holders: dict[Device, dict[Holder, str]] = defaultdict(dict)

    def add_pod(
        self, holder: Holder, node: str, devices: Iterable[DeviceStatus], since: str
    ) -> None:
        """Add a pod that has not terminated, with the devices that its status names.

        Those of claims, which pods may share, do not count. `since` is when it started.
        """
        for found in devices:
            if found.device and is_gpu(found.resource, self._profile):
                device = Device(
                    is_of_driver=False, resource=found.resource, place=node, name=found.device
                )
                self._holders[device][holder] = since

    def add_claim(self, claim: Mapping[str, Any]) -> None:
        """Add a claim, which need not have devices."""
        metadata = as_object(claim.get("metadata"))
        holder = Holder(as_text(metadata.get("namespace")), as_text(metadata.get("name")))
        allocation = as_object(as_object(claim.get("status")).get("allocation"))
        since = as_text(allocation.get("allocationTimestamp"))
        for driver, pool, name in own_devices(claim):
            device = Device(is_of_driver=True, resource=driver, place=pool, name=name)
            self._holders[device][holder] = since

    def given_twice(self) -> tuple[GivenTwice, ...]:
        """The devices that several have, those of drivers first."""
        return tuple(
            GivenTwice(
                device=device,
                holders=tuple(holders),
                is_gpu=not device.is_of_driver or is_gpu_driver(device.resource, self._profile),
                since=sorted(holders.values())[1] if all(holders.values()) else "",
            )
            for device, holders in sorted(self._holders.items(), key=_order)
            if len(holders) > 1
        )


def _order(item: tuple[Device, object]) -> tuple[bool, Device]:
    return not item[0].is_of_driver, item[0]
