"""Devices that several pods or claims have, although each has them for itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cluster.accounting.claims import own_devices
from cluster.accounting.device_status import device_statuses
from cluster.accounting.passthrough import is_gpu
from cluster.accounting.pod_requests import has_terminated
from cluster.source.objects import Object
from reports.formats import many, some
from reports.results import Remark
from rules.base.json_values import as_object, as_text
from rules.profile.profile import Profile

_MAX_REMARKS = 20
_REMEDY = "gpuward doctor says what to do"


class DeviceHolders:
    """Collects who has which device. `profile` says which resources are GPUs."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._holders: dict[tuple[str, str, str], list[str]] = defaultdict(list)

    def add(self, raw: Object) -> None:
        """Add an object, if it is a pod or a claim with devices."""
        metadata = as_object(raw.get("metadata"))
        namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        kind = raw.get("kind")
        if kind == "ResourceClaim":
            for driver, pool, device in own_devices(raw):
                self._holders[driver, pool, device].append(f"claim {namespace}/{name}")
        elif kind == "Pod" and not has_terminated(raw):
            node = as_text(as_object(raw.get("spec")).get("nodeName"))
            for found in device_statuses(raw):
                if found.device and is_gpu(found.resource, self._profile):
                    place = found.resource, node, found.device
                    self._holders[place].append(f"pod {namespace}/{name}")

    @property
    def given_twice(self) -> int:
        """Return how many devices several have."""
        return sum(1 for _ in self._twice())

    def remarks(self) -> Iterator[Remark]:
        """A warning for each such device."""
        found = [*self._twice()]
        for (resource, where, device), holders in found[:_MAX_REMARKS]:
            text = f"{some(holders)} have the same device {device} of {where} as {resource}"
            yield Remark("warning", "", 0, 0, f"{text}: {_REMEDY}")
        if (rest := len(found) - _MAX_REMARKS) > 0:
            yield Remark("warning", "", 0, 0, f"{many(rest, 'more device')} given twice: {_REMEDY}")

    def _twice(self) -> Iterator[tuple[tuple[str, str, str], list[str]]]:
        return ((place, who) for place, who in sorted(self._holders.items()) if len(who) > 1)
