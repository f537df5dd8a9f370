"""The devices that a pod's status names, since Kubernetes 1.36: whole cards, and their health."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.passthrough import is_gpu
from rules.base.json_values import as_object, as_objects, as_text
from rules.profile.profile import Profile


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


_CLAIM = "claim:"


class SickDevice(NamedTuple):
    """A device that its plugin or driver calls unhealthy, and a pod on `node` that has it."""

    namespace: str
    pod: str
    node: str
    resource: str
    device: str

    def __str__(self) -> str:
        who = f"pod {self.namespace}/{self.pod}" if self.pod else "a pod in another namespace"
        return f"{who} has {self.what}: gpuward doctor says what to do"

    @property
    def what(self) -> str:
        """Return which device it is."""
        claim = self.resource.removeprefix(_CLAIM)
        by = f"as {self.resource}"
        if claim != self.resource:
            by = f"by its claim {claim}" if claim else "by a claim"
        return f"the unhealthy device {self.device} of {self.node} {by}"

    def without_names(self) -> SickDevice:
        """Return the same for readers who may not see what is in the namespace."""
        is_of_claim = self.resource.startswith(_CLAIM)
        resource = _CLAIM if is_of_claim else self.resource
        return self._replace(namespace="", pod="", resource=resource)


def sick_devices(pod: Mapping[str, Any], profile: Profile) -> Iterator[SickDevice]:
    """Yield the unhealthy devices of a pod: GPUs by `profile`, and whatever a claim has."""
    for found in device_statuses(pod):
        is_counted = found.resource.startswith(_CLAIM) or is_gpu(found.resource, profile)
        if found.health == "Unhealthy" and is_counted:
            metadata = as_object(pod.get("metadata"))
            yield SickDevice(
                namespace=as_text(metadata.get("namespace")),
                pod=as_text(metadata.get("name")),
                node=as_text(as_object(pod.get("spec")).get("nodeName")),
                resource=found.resource,
                device=found.device,
            )
