"""The devices that a pod's status names, since Kubernetes 1.36: whole cards of device plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text


class DeviceStatus(NamedTuple):
    """A device of a pod: its resource, the ID that the device plugin uses, and its health.

    Devices of a claim have `claim:` and the name of the claim as their resource.
    """

    resource: str
    device: str
    health: str


def device_statuses(pod: Mapping[str, Any]) -> Iterator[DeviceStatus]:
    """Yield the kubelet's statuses of the devices of a pod's containers, each once.

    Source: Kubernetes, `staging/src/k8s.io/api/core/v1/types.go`, ResourceStatus.
    """
    status = as_object(pod.get("status"))
    found = (
        DeviceStatus(
            resource=as_text(allocated.get("name")),
            device=as_text(device.get("resourceID")),
            health=as_text(device.get("health")),
        )
        for field in ("initContainerStatuses", "containerStatuses")
        for _, container in as_objects(status.get(field))
        for _, allocated in as_objects(container.get("allocatedResourcesStatus"))
        for _, device in as_objects(allocated.get("resources"))
    )
    yield from dict.fromkeys(found)
