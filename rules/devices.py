"""Which GPUs a container asks the scheduler for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from rules.container import Container
from rules.pod import Pod
from rules.profile import Profile, Resource
from rules.quantity import Malformed, Placeholder, Quantity, parse
from rules.reading import text

# Resources of Kubernetes' own.
NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
Amount: TypeAlias = Quantity | Placeholder | Malformed | None


class Device:
    """One GPU resource of one container: limit and request as parsed, None where absent.

    `held` is whether any of it is asked for; the unreadable counts, so that nobody loses a
    GPU. It `is_ordinary` if the limit is a count of devices and no request differs from it.
    """

    __slots__ = ("held", "is_ordinary", "limit", "name", "request", "resource")

    def __init__(self, name: str, resource: Resource, limit: Amount, request: Amount) -> None:
        self.name = name
        self.resource = resource
        self.limit = limit
        self.request = request
        self.held = _is_some(limit) or _is_some(request)
        self.is_ordinary = (
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
        device = None if name in NATIVE else device_of(name, limits, requests, container.profile)
        if device is not None:
            yield name, device


def device_of(
    name: str, limits: Mapping[str, Any], requests: Mapping[str, Any], profile: Profile
) -> Device | None:
    """The GPU resource `name` as a container asks for it; None if it is nothing known."""
    resource = profile.resource(name)
    if resource is None:
        return None
    limit = parse(limits[name]) if name in limits else None
    request = parse(requests[name]) if name in requests else None
    return Device(name, resource, limit, request)


def holds_gpu(container: Container) -> bool:
    """Whether `container` asks for a GPU in any way that the scheduler knows of.

    A claim of any class counts: whether it is for a GPU is not written in the pod.
    """
    if container.holds is None:
        container.holds = bool(
            any(device.held for device in devices(container).values())
            or container.claims
            or fraction_target(container.pod) is container
        )
    return container.holds


def holds_share(container: Container) -> bool:
    """Whether `container` asks for a share of a card that software divides."""
    held = (device for device in devices(container).values() if device.held)
    return any(device.resource.sharing == "share" for device in held)


def only_claims(container: Container) -> bool:
    """Whether `container` uses a claim, of whatever class, and no GPU resource."""
    held = any(device.held for device in devices(container).values())
    return bool(container.claims) and not held


def asks_for(container: Container) -> str:
    """What a container that holds a GPU does to get it, in words."""
    return "uses a resource claim" if only_claims(container) else "asks for a GPU"


def pod_holds_gpu(pod: Pod) -> bool:
    """Whether any container of `pod` asks for a GPU."""
    if pod.holds is None:
        pod.holds = any(holds_gpu(container) for container in pod.containers)
    return pod.holds


def pod_only_claims(pod: Pod) -> bool:
    """Whether all that makes `pod` one that holds a GPU are claims, which may be for others."""
    holders = [container for container in pod.containers if holds_gpu(container)]
    return bool(holders) and all(only_claims(container) for container in holders)


def held_by(pod: Pod) -> tuple[str, ...]:
    """The GPU resources that any container of `pod` asks for, each once."""
    if pod.held is None:
        found = (device for c in pod.containers for device in devices(c).values() if device.held)
        pod.held = tuple(dict.fromkeys(device.name for device in found))
    return pod.held


def fraction_target(pod: Pod) -> Container | None:
    """The container for which the pod's annotations ask for a part of a GPU, if they do."""
    if pod.fraction is None:
        pod.fraction = (_fraction_target(pod),)
    return pod.fraction[0]


def _fraction_target(pod: Pod) -> Container | None:
    for fraction in pod.profile.fractions:
        if any(key in pod.annotations for key in fraction.annotations):
            wanted = pod.annotations.get(fraction.target) if fraction.target else None
            apps = [c for c in pod.containers if c.role == "app"]
            return next((c for c in apps if c.name == wanted), apps[0] if apps else None)
    return None


def uses_gpu_runtime(pod: Pod) -> bool:
    """Whether the pod names a runtime class that injects GPUs."""
    return text(pod.spec.get("runtimeClassName")) in pod.profile.runtime_classes
