"""Remarks about devices that several pods or claims have, each for itself."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.accounting.device_holders import DeviceHolders, Holder
from cluster.accounting.device_status import device_statuses
from cluster.accounting.pod_requests import has_terminated
from cluster.source.objects import Object
from reports.formats import many
from reports.results import Remark
from rules.base.json_values import as_object, as_text
from rules.profile.profile import Profile

_MAX_REMARKS = 20


class DeviceRemarks:
    """Collects the holders of devices. `profile` says which resources are GPUs."""

    def __init__(self, profile: Profile) -> None:
        self._holders = DeviceHolders(profile)

    def add(self, raw: Object) -> None:
        """Add an object, if it is a pod or a claim with devices."""
        kind = raw.get("kind")
        if kind == "ResourceClaim":
            self._holders.add_claim(raw)
        elif kind == "Pod" and (devices := [*device_statuses(raw)]) and not has_terminated(raw):
            metadata = as_object(raw.get("metadata"))
            holder = Holder(as_text(metadata.get("namespace")), as_text(metadata.get("name")))
            node = as_text(as_object(raw.get("spec")).get("nodeName"))
            self._holders.add_pod(holder, node, devices)

    @property
    def given_twice(self) -> int:
        """Return how many devices several have."""
        return len(self._holders.given_twice())

    def remarks(self) -> Iterator[Remark]:
        """A warning for each such device."""
        found = self._holders.given_twice()
        for each in found[:_MAX_REMARKS]:
            yield Remark("warning", "", 0, 0, str(each))
        if (rest := len(found) - _MAX_REMARKS) > 0:
            more = f"{many(rest, 'more device')} given twice: gpuward doctor says what to do"
            yield Remark("warning", "", 0, 0, more)
