"""Which GPUs a container asks the scheduler for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from rules.base.json_access import as_text
from rules.base.quantity import Malformed, Placeholder, Quantity, parse
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.profile.records import Resource

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""The resources that Kubernetes itself defines."""
REQUEST_IN_LIMITS = "ask for the GPU in resources.limits (such as nvidia.com/gpu: 1)"
"""Advice, to follow what must be removed."""
Amount: TypeAlias = Quantity | Placeholder | Malformed | None


class Device:
    """One GPU resource of one container: limit and request as parsed, None where absent.

    - `is_requested`: an amount above zero is asked for. An amount that cannot be read counts, so
      that nobody loses a GPU to a typing error.
    - `is_plain_count`: the limit is a number of devices, and no request differs from it.
    """

    __slots__ = ("is_plain_count", "is_requested", "limit", "name", "request", "resource")

    def __init__(self, name: str, resource: Resource, limit: Amount, request: Amount) -> None:
        self.name = name
        self.resource = resource
        self.limit = limit
        self.request = request
        self.is_requested = _is_some(limit) or _is_some(request)
        self.is_plain_count = (
            isinstance(limit, Quantity)
            and limit.nano > 0
            and limit.is_integer
            and (
                request is None
                or request is limit
                or (isinstance(request, Quantity) and request.equal_to(limit))
            )
        )


def _is_some(amount: Amount) -> bool:
    return amount.nano > 0 if isinstance(amount, Quantity) else amount is not None


def devices(container: Container) -> Mapping[str, Device]:
    """The GPU resources that `container` names, of whatever family, by name."""
    if container.devices is None:
        container.devices = dict(_devices(container))
    return container.devices


def _devices(container: Container) -> Iterator[tuple[str, Device]]:
    limits, requests = container.limits, container.requests
    for name in dict.fromkeys((*limits, *requests)):
        device = None if name in NATIVE else parse_device(name, limits, requests, container.profile)
        if device is not None:
            yield name, device


def parse_device(
    name: str, limits: Mapping[str, Any], requests: Mapping[str, Any], profile: Profile
) -> Device | None:
    """The GPU resource `name` as a container asks for it; None if it is nothing known."""
    resource = profile.resource(name)
    if resource is None:
        return None
    limit = parse(limits[name]) if name in limits else None
    request = parse(requests[name]) if name in requests else None
    return Device(name, resource, limit, request)


def requests_gpu(container: Container) -> bool:
    """Whether `container` asks for a GPU in any way that the scheduler knows of.

    A claim of any class counts: the pod does not say whether it is for a GPU.
    """
    if container.requests_gpu is None:
        container.requests_gpu = bool(
            any(device.is_requested for device in devices(container).values())
            or container.claims
            or container.is_fraction_target
        )
    return container.requests_gpu


def requests_share(container: Container) -> bool:
    """Whether `container` asks for a share of a card that software divides."""
    requested = (device for device in devices(container).values() if device.is_requested)
    return any(device.resource.sharing == "share" for device in requested)


def uses_only_claims(container: Container) -> bool:
    """Whether `container` uses a claim, of whatever class, and no GPU resource."""
    requests_resource = any(device.is_requested for device in devices(container).values())
    return bool(container.claims) and not requests_resource


def describe_request(container: Container) -> str:
    """How a container that requests a GPU does so, in words for a message."""
    return "uses a resource claim" if uses_only_claims(container) else "asks for a GPU"


def pod_requests_gpu(pod: Pod) -> bool:
    """Whether any container of `pod` asks for a GPU."""
    if pod.requests_gpu is None:
        pod.requests_gpu = any(requests_gpu(container) for container in pod.containers)
    return pod.requests_gpu


def pod_uses_only_claims(pod: Pod) -> bool:
    """Whether the pod requests GPUs by claims alone, which may be for other devices."""
    requesting = [container for container in pod.containers if requests_gpu(container)]
    return bool(requesting) and all(uses_only_claims(container) for container in requesting)


def requested_resources(pod: Pod) -> tuple[str, ...]:
    """The GPU resources that any container of `pod` asks for, each once."""
    if pod.requested_resources is None:
        found = (
            device for c in pod.containers for device in devices(c).values() if device.is_requested
        )
        pod.requested_resources = tuple(dict.fromkeys(device.name for device in found))
    return pod.requested_resources


def uses_gpu_runtime(pod: Pod) -> bool:
    """Whether the pod names a runtime class that injects GPUs."""
    return as_text(pod.spec.get("runtimeClassName")) in pod.profile.runtime_classes
