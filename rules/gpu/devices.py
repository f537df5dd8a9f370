"""Which GPUs a container requests from the scheduler."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from rules.base.json_access import as_text
from rules.base.quantity import Malformed, Placeholder, Quantity, parse
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.profile.records import Resource

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""The resources that Kubernetes itself defines."""
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
Amount: TypeAlias = Quantity | Placeholder | Malformed | None


class Device:
    """One GPU resource of one container: limit and request as parsed, None where absent.

    - `is_requested`: the limit or the request is above zero. An amount that cannot be parsed counts
      too, so that no container loses a GPU because of a typing error.
    - `is_plain_count`: the limit is a positive whole number, and the request, if any, equals it.
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
    """The GPU resources in the limits and requests of `container`, by name."""
    if container.devices is None:
        container.devices = parse_devices(container.limits, container.requests, container.profile)
    return container.devices


def parse_devices(
    limits: Mapping[str, Any], requests: Mapping[str, Any], profile: Profile
) -> dict[str, Device]:
    """The GPU resources of a container with these limits and requests, as written, by name."""
    found: dict[str, Device] = {}
    for name in dict.fromkeys((*limits, *requests)):
        device = None if name in NATIVE else parse_device(name, limits, requests, profile)
        if device is not None:
            found[name] = device
    return found


def parse_device(
    name: str, limits: Mapping[str, Any], requests: Mapping[str, Any], profile: Profile
) -> Device | None:
    """The GPU resource `name` of a container; None if the profile does not know the name.

    `limits` and `requests` are the container's, as written.
    """
    resource = profile.resource(name)
    if resource is None:
        return None
    limit = parse(limits[name]) if name in limits else None
    request = parse(requests[name]) if name in requests else None
    return Device(name, resource, limit, request)


def requests_gpu(container: Container) -> bool:
    """Whether `container` requests a GPU in any way that a scheduler counts.

    These are a GPU resource, a resource claim, and the annotations for a part of a GPU. A claim of
    any class counts, because the pod does not show whether the claim is for a GPU.
    """
    if container.requests_gpu is None:
        container.requests_gpu = bool(
            request_of(container).first or container.claims or container.is_fraction_target
        )
    return container.requests_gpu


def requests_share(container: Container) -> bool:
    """Whether `container` requests a share of a card that software divides."""
    requested = (device for device in devices(container).values() if device.is_requested)
    return any(device.resource.sharing == "share" for device in requested)


class Request(NamedTuple):
    """The GPU resources that a container requests.

    `first` is the name of the first one by name, cards before shares of them; `vendors` are those
    of all; `from_plugin` says whether a device plugin offers any of them.
    """

    first: str
    vendors: frozenset[str]
    from_plugin: bool


def request_of(container: Container) -> Request:
    """What `container` requests. Stored in the view, because rules ask for every variable."""
    request: Request | None = container.request
    if request is None:
        names, vendors, from_plugin = [], set(), False
        for name, device in devices(container).items():
            if device.is_requested:
                names.append((device.resource.unit != "device", name))
                vendors.add(device.resource.vendor)
                from_plugin = from_plugin or not is_device_class(name)
        # The order of resources is lost on the way to a webhook.
        first = min(names)[1] if names else ""
        request = container.request = Request(first, frozenset(vendors), from_plugin)
    return request


def uses_device_plugin(container: Container) -> bool:
    """Whether a device plugin gives `container` its GPU, or a scheduler a part of one.

    Both name the card in a variable, which the pod must not replace. The devices of a resource
    claim, and of a device class that is asked for as a resource, are injected by CDI (Container
    Device Interface), which no variable stops.
    """
    return container.is_fraction_target or request_of(container).from_plugin


def is_device_class(name: str) -> bool:
    """Whether the resource `name` is a device class: Kubernetes makes a resource claim of it."""
    return name.startswith(DEVICE_CLASS_PREFIX)


def uses_only_claims(container: Container) -> bool:
    """Whether `container` uses a resource claim, of any class, and requests no GPU resource."""
    return bool(container.claims) and not request_of(container).first


def describe_request(container: Container) -> str:
    """The predicate of a message: `uses a resource claim` or `asks for a GPU`, for example."""
    if uses_only_claims(container):
        return "uses a resource claim"
    return "asks for a GPU" if uses_device_plugin(container) else "asks for a device class"


def pod_requests_gpu(pod: Pod) -> bool:
    """Whether any container of `pod` requests a GPU, as `requests_gpu` defines it."""
    if pod.requests_gpu is None:
        pod.requests_gpu = any(requests_gpu(container) for container in pod.containers)
    return pod.requests_gpu


def pod_uses_only_claims(pod: Pod) -> bool:
    """Whether the pod requests GPUs by resource claims alone. These may be for other devices."""
    requesting = [container for container in pod.containers if requests_gpu(container)]
    return bool(requesting) and all(uses_only_claims(container) for container in requesting)


def requested_resources(pod: Pod) -> tuple[str, ...]:
    """The names of the GPU resources that the containers of `pod` request, each once, in order."""
    if pod.requested_resources is None:
        names: dict[str, None] = {}
        for container in pod.containers:
            for name, device in devices(container).items():
                if device.is_requested:
                    names[name] = None
        pod.requested_resources = tuple(names)
    return pod.requested_resources


def uses_gpu_runtime(pod: Pod) -> bool:
    """Whether the pod names a runtime class that injects GPUs."""
    return as_text(pod.spec.get("runtimeClassName")) in pod.profile.runtime_classes
