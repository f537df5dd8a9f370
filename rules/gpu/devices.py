"""The GPUs that containers, and all of a pod together, request from the scheduler."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from rules.base.json_values import Path, as_object, as_text, display
from rules.base.pod_amounts import amounts_together, runs_with_others
from rules.base.quantity import Malformed, Placeholder, Quantity, parse
from rules.base.text_matching import is_found
from rules.inventory.inventory import GpuPatch, Inventory, RuntimeClass
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.objects.view import once_per_view
from rules.profile.context import Context
from rules.profile.profile import Profile, Resource

NATIVE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
"""The resources that Kubernetes itself defines."""
FIELDS_OF_RESOURCES = frozenset({"limits", "requests", "claims"})
"""The fields of a container's `resources`."""
MISPLACED_RESOURCE_FIELDS = ("limits", "requests", "resource")
"""Fields that a container does not have, where users write resources by mistake."""
_NANO = 10**9
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
Amount: TypeAlias = Quantity | Placeholder | Malformed | None
# Resources of network cards for RDMA: rdma/hca, nvidia.com/rdma_shared_device_a, openshift.io/roce.
RDMA_PATTERN = "rdma|roce|hca|infiniband|mlnx|mellanox|(?:^|[/_.-])(?:ib|efa)(?:[_.-]|$)"
# Resources of other devices that are no GPUs: of networks, virtual machines, FPGAs and the like.
NO_GPU_PATTERN = (
    "sriov|netdevice|hostdev|fpga|sgx|vhost|(?:batch|mid)-(?:cpu|memory)"
    "|(?:^|[/_.-])(?:eni|fuse|kvm|tun|tap|qat|dsa|dlb|iaa|usb|tpm|snd|nic|vf|sev|tdx)s?(?:[_.-]|$)"
)
# What is in a name without a domain, which the API server refuses, if a GPU is meant.
_WORDS_OF_GPUS = ("gpu", "nvidia")


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
        self.is_requested = _may_be_positive(limit) or _may_be_positive(request)
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

    @property
    def amount(self) -> Amount:
        """The limit, or the request without one."""
        return self.request if self.limit is None else self.limit


def _may_be_positive(amount: Amount) -> bool:
    return amount.nano > 0 if isinstance(amount, Quantity) else amount is not None


@once_per_view
def devices(container: Container) -> Mapping[str, Device]:
    """The GPU resources in the limits and requests of `container`, by name."""
    return parse_devices(container.limits, container.requests, container.profile)


def parse_devices(
    limits: Mapping[str, Any], requests: Mapping[str, Any], profile: Profile
) -> dict[str, Device]:
    """The GPU resources of a container with these limits and requests, as written, by name."""
    found: dict[str, Device] = {}
    for name in dict.fromkeys((*limits, *requests)):
        device = None if name in NATIVE_RESOURCES else parse_device(name, limits, requests, profile)
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


@once_per_view
def requests_gpu(container: Container) -> bool:
    """Return whether `container` requests a GPU in any way that a scheduler counts.

    These are a GPU resource, a resource claim, and the annotations for a part of a GPU. A claim of
    any class counts, because the pod does not show whether the claim is for a GPU.
    """
    return bool(
        request_of(container).first_name or container.claims or container.is_fraction_target
    )


def misplaced_resources(container: Container) -> Iterator[tuple[Path, str]]:
    """The GPU resources of `container` in fields that Kubernetes does not know, each with its path.

    Such are `resources.limit`, a name directly under `resources`, and `limits` of the container
    itself. They are where the path ends before the name.
    """
    resources, path = container.resources, container.resources_path
    for field, value in resources.items():
        if field not in FIELDS_OF_RESOURCES:
            if container.profile.resource(field):
                yield (*path, field), field
            yield from _gpu_resources(container, (*path, field), value)
    for field in MISPLACED_RESOURCE_FIELDS:
        value = as_object(container.raw.get(field))
        yield from _gpu_resources(container, (*container.path, field), value)
        for inner in FIELDS_OF_RESOURCES.intersection(value):
            yield from _gpu_resources(container, (*container.path, field, inner), value[inner])


def _gpu_resources(container: Container, path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    for name in as_object(value):
        if container.profile.resource(name):
            yield (*path, name), name


def name_of_unknown_device(container: Container) -> str:
    """The first of `unknown_devices`; empty if there is none."""
    return next(unknown_devices(container), "")


def unknown_devices(container: Container) -> Iterator[str]:
    """The extended resources of `container` that may be GPUs, by names that gpuward does not know.

    Device plugins can rename what they offer, as `nvidia.com/a100`, and users misspell names, as
    `gpu`, or put the right one in a wrong place. Resources of RDMA and of other devices are not
    meant.
    """
    for name in dict.fromkeys((*container.limits, *container.requests)):
        if container.profile.resource(name) or not (
            "/" in name or any(word in name.lower() for word in _WORDS_OF_GPUS)
        ):
            continue
        amounts = (
            parse(given[name]) for given in (container.limits, container.requests) if name in given
        )
        if any(map(_may_be_positive, amounts)) and not is_of_other_device(name.lower()):
            yield name
    yield from (name for _, name in misplaced_resources(container))


def is_of_other_device(name: str) -> bool:
    """Return whether `name`, in small letters, is one of devices that are known to be no GPUs."""
    return is_found(RDMA_PATTERN, name) or is_found(NO_GPU_PATTERN, name)


def requests_share(container: Container) -> bool:
    """Return whether `container` requests a share of a card that software divides."""
    requested = (device for device in devices(container).values() if device.is_requested)
    return any(device.resource.sharing == "share" for device in requested)


class GpuRequest(NamedTuple):
    """The GPU resources that a container requests.

    `first_name` is the first of their names in alphabetical order, those of cards before those of
    shares; `vendors` are those of all; `is_from_plugin` says whether a device plugin offers any.
    """

    first_name: str
    vendors: frozenset[str]
    is_from_plugin: bool


@once_per_view  # rules ask for every variable
def request_of(container: Container) -> GpuRequest:
    """Return the request of `container`."""
    names, vendors, is_from_plugin = [], set(), False
    for name, device in devices(container).items():
        if device.is_requested:
            names.append((device.resource.unit != "device", name))
            vendors.add(device.resource.vendor)
            is_from_plugin = is_from_plugin or not is_device_class(name)
    # The order of resources is lost on the way to a webhook.
    first = min(names)[1] if names else ""
    return GpuRequest(first, frozenset(vendors), is_from_plugin)


def uses_device_plugin(container: Container) -> bool:
    """Return whether a device plugin gives `container` its GPU, or a scheduler a part of one.

    Both name the card in a variable, which the pod must not replace. The devices of a resource
    claim, and of a device class that is asked for as a resource, are injected by CDI (Container
    Device Interface), which no variable stops.
    """
    return container.is_fraction_target or request_of(container).is_from_plugin


def is_device_class(name: str) -> bool:
    """Return whether the resource `name` is a device class, for which Kubernetes makes a claim."""
    return name.startswith(DEVICE_CLASS_PREFIX)


def uses_only_claims(container: Container) -> bool:
    """Return whether `container` uses a claim, of any class, and requests no GPU resource."""
    return bool(container.claims) and not request_of(container).first_name


def describe_request(container: Container) -> str:
    """The predicate of a message: `uses a resource claim` or `asks for a GPU`, for example."""
    if not requests_gpu(container):
        unknown = name_of_unknown_device(container)
        return f"asks for {display(unknown)} (perhaps a GPU)" if unknown else "asks for no GPU"
    if uses_only_claims(container):
        return "uses a resource claim"
    return "asks for a GPU" if uses_device_plugin(container) else "asks for a device class"


@once_per_view
def pod_requests_gpu(pod: Pod) -> bool:
    """Return whether any container of `pod` requests a GPU, as `requests_gpu` defines it.

    A claim of the pod counts also if no container uses it: the scheduler allocates its devices, and
    places the pod on a node that has them.
    """
    return bool(pod.spec.get("resourceClaims")) or any(map(requests_gpu, pod.containers))


def pod_uses_only_claims(pod: Pod) -> bool:
    """Return whether the pod requests GPUs by resource claims alone, if at all.

    The claims may be for other devices.
    """
    requesting = filter(requests_gpu, pod.containers)
    return pod_requests_gpu(pod) and all(map(uses_only_claims, requesting))


@once_per_view
def requested_resources(pod: Pod) -> tuple[str, ...]:
    """The names of the GPU resources that the containers of `pod` request, each once, in order."""
    names: dict[str, None] = {}
    for container in pod.containers:
        for name, device in devices(container).items():
            if device.is_requested:
                names[name] = None
    return tuple(names)


def uses_gpu_runtime(pod: Pod) -> bool:
    """Return whether the pod names a runtime class that injects GPUs."""
    return as_text(pod.spec.get("runtimeClassName")) in pod.profile.runtime_classes


def gpu_handler(pod: Pod, inventory: Inventory) -> str:
    """The handler of the pod's runtime class if that is one that injects GPUs; else empty.

    Container runtimes know a runtime class by its handler, whatever the name of the class.
    """
    known = inventory.find(RuntimeClass, as_text(pod.spec.get("runtimeClassName")))
    return known.handler if known and known.handler in pod.profile.runtime_classes else ""


def means_unrequested_gpu(pod: Pod, inventory: Inventory) -> bool:
    """Return whether the pod names a GPU runtime class and requests no GPU.

    A user who names the class means the GPU: to hide it is not for gpuward to decide.
    """
    named = uses_gpu_runtime(pod) or gpu_handler(pod, inventory)
    return bool(named) and not pod_requests_gpu(pod)


def share_of_unknown_platform(pod: Pod, context: Context) -> str:
    """Return the annotation by which `pod` asks a scheduler for a part of a GPU; perhaps empty.

    Only of a scheduler that no chosen profile has, and that the pod names, or that takes it by its
    label: whether the cluster has that scheduler is not known. At admission it is: the policy of a
    webhook has the profiles of its cluster.
    """
    if context.operation is not None:
        return ""
    profile = pod.profile
    for scheduler, requests in sorted(profile.share_requests.items()):
        is_for_it = scheduler == pod.scheduler or any(request.label for request in requests)
        if is_for_it and scheduler not in profile.scheduler_names:
            request = profile.share_request(
                pod.annotations, pod.labels, scheduler, has_placeholders=True
            )
            if request is not None:
                return request.annotation
    return ""


def gets_gpu_by_patch(pod: Pod, inventory: Inventory) -> bool:
    """Return whether a patch of a kustomization makes containers of the pod ask for GPUs.

    A variable that hides GPUs would stay beside the request and hide those too.
    """
    return inventory.find(GpuPatch, f"{pod.object.kind}/{pod.object.name}") is not None


def only_init_requests_gpu(pod: Pod) -> bool:
    """Return whether init containers alone request GPU resources, and end before the others run.

    A sidecar, which is an init container that is restarted, runs as long as the pod.
    """
    requested = False
    for container in pod.containers:
        if request_of(container).first_name or container.is_fraction_target:
            if container.role != "init" or container.raw.get("restartPolicy") == "Always":
                return False
            requested = True
    return requested


def effective_requests(pod: Pod) -> dict[str, int]:
    """The whole units of each GPU resource that the scheduler and quotas count for `pod`.

    The overhead of the pod is added to what its containers take together. A resource with an amount
    that is no number is left out.
    """
    unknown: set[str] = set()
    together = amounts_together(
        (
            runs_with_others(container.raw, is_init=container.role == "init"),
            _requested_amounts(container, unknown),
        )
        for container in pod.containers
    )
    overhead = as_object(pod.spec.get("overhead"))
    found = {}
    for name in requested_resources(pod):
        more = parse(overhead.get(name, 0))
        if isinstance(more, Quantity) and name not in unknown:
            found[name] = -(-(together.get(name, 0) + more.nano) // _NANO)
    return found


def _requested_amounts(container: Container, unknown: set[str]) -> dict[str, int]:
    """The requests of GPU resources in units of 1e-9; those that are no number go to `unknown`."""
    found = {}
    for name, device in devices(container).items():
        amount = device.limit if device.request is None else device.request
        if isinstance(amount, Quantity):
            found[name] = max(amount.nano, 0)
        else:
            unknown.add(name)
    return found


def path_of_first_request(pod: Pod, name: str) -> Path:
    """The path of the amount of the GPU resource `name` in the first container that has one."""
    return next(c for c in pod.containers if name in devices(c)).amount_path(name)


_DEVICE_UNIT = "device"


def whole_gpus(container: Container) -> int | None:
    """The number of whole cards that `container` requests, 0 if it requests none.

    None if the manifest does not tell: an amount is a placeholder or invalid, or the container has
    a resource claim, a part of a card, or a MIG device.
    """
    if container.claims or container.is_fraction_target:
        return None
    total = 0
    for device in devices(container).values():
        if not device.is_requested:
            continue
        resource = device.resource
        if (
            not device.is_plain_count
            or resource.unit != _DEVICE_UNIT
            or resource.sharing != "whole"
        ):
            return None
        total += device.limit.value  # type: ignore[union-attr]  # a plain count is a Quantity
    return total
