"""GPUs are asked for that hardly any node has together.

What it does
------------
Finds pods that request whole cards of a vendor (`nvidia.com/gpu`) and also shares into which
software divides that vendor's cards (`aliyun.com/gpu-mem`, `koordinator.sh/gpu-core`). Amounts
that belong to a count, such as `nvidia.com/gpumem` beside `nvidia.com/gpu`, are fine, and so are
MIG devices beside whole cards.

Also finds a pod that requests shares of one vendor's cards from two systems, as HAMi's
`nvidia.com/gpumem` and `volcano.sh/vgpu-number`: these resources have other domains. A share by
annotation, as KAI's `gpu-fraction` or TensorFusion's `tensor-fusion.ai/vram-request`, is one more
system, beside a resource or beside another such annotation. It counts if a chosen profile has the
annotation, if the pod names the scheduler that gives the share, or if it has the label by which the
system takes it for its own, and only beside a share of the same vendor's cards. A whole
`nvidia.com/gpu` beside it is left to `fraction-annotation`: TensorFusion takes it for the number of
cards. A pod that says `tensor-fusion.ai/is-local-gpu: "false"` asks for a remote card, which a
worker gets on a node of TensorFusion: its own node needs the other share alone. Without the
annotation the GPUPool decides, and by default the card is a local one.

Also finds a container that asks for devices of two vendors, such as `nvidia.com/gpu` and
`amd.com/gpu`. Intel's GPUs are left out, as many machines have one beside cards of another vendor.

Why it matters
--------------
A node that shares its cards usually does not also offer whole cards: on ACK the modes of a node
exclude each other. No node then fits the pod, and it waits forever. A system that shares cards
counts only what it hands out itself, so a node has one of them. Nor do clouds offer machines with
cards of two vendors.

References
----------
- https://www.alibabacloud.com/help/en/container-service-for-kubernetes/latest/labels-used-by-ack-to-control-gpus
- NexusGPU/tensor-fusion, `internal/webhook/v1/tf_parser.go` and `pod_webhook.go`
"""

from rules.base.json_values import display
from rules.base.text_matching import matches_any
from rules.base.traits import GPU_ANNOTATION, OTHER_GPU_RESOURCE, SEVERAL_GPUS, SHARE
from rules.gpu.devices import Device, devices
from rules.profile.profile import ShareRequest
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# No real pod requests so many kinds of card. The limit bounds the time for hostile pods.
MAX_COMPARED_DEVICES = 50
_MAX_COMPARED_IN_CEL = 10  # of each container
# "other" is what profiles say of devices of many makers.
COMBINABLE_VENDORS = ("intel", "other")
VENDORS_FAULT = ", devices of two vendors: hardly any node has both"
VENDORS_ADVICE = "keep the one that the program is built for, and remove the other"
MIX_FAULT = ": few nodes offer both shares and whole cards"
SYSTEMS_FAULT = ": two systems share cards, and a node has one of them"
SYSTEMS_ADVICE = "ask for the shares of the system that the cluster has"
MIX_ADVICE = "ask for whole cards or for shares, not for both; run the two in pods of their own"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each share beside a whole card of its vendor, and devices of a second one or system."""
    requested = [(c, d) for c in pod.containers for d in devices(c).values() if d.is_requested]
    by_annotation = [*_findings_of_annotations(pod, requested, context)]
    yield from by_annotation
    if len(requested) < 2:  # noqa: PLR2004  # a mix needs two resources
        return
    whole: dict[str, list[Device]] = {}
    for _, device in requested:
        if device.resource.sharing == "whole":
            whole.setdefault(device.resource.vendor, []).append(device)
    shares = [each for each in requested if each[1].resource.sharing == "share"]
    mixed = False
    for container, device in shares:
        candidates = whole.get(device.resource.vendor, [])[:MAX_COMPARED_DEVICES]
        other = next((w for w in candidates if _exclude_each_other(device, w)), None)
        if other:
            mixed = True
            yield _finding(container, device, other)
    if not (mixed or by_annotation):
        yield from _findings_of_two_systems(shares)
    for container in pod.containers:
        yield from _findings_of_several_vendors(container)


def _findings_of_two_systems(shares: list[tuple[Container, Device]]) -> Findings:
    """Yield the first share of each vendor's cards that is of another domain than one before."""
    first: dict[str, Device] = {}
    reported: set[str] = set()
    # Sorted: the finding stays when resources or containers change places.
    for container, device in sorted(shares, key=lambda share: (share[1].name, share[0].name)):
        vendor = device.resource.vendor
        other = first.setdefault(vendor, device)
        if _domain(device) != _domain(other) and vendor not in reported:
            reported.add(vendor)
            yield Finding(
                path=container.amount_path(device.name),
                key=f"systems.{device.name}",
                message=f"{container} asks for {display(device.name)} and the pod also for "
                f"{display(other.name)}{SYSTEMS_FAULT}",
                container=container,
                help=SYSTEMS_ADVICE,
            )


def _findings_of_annotations(
    pod: Pod, requested: list[tuple[Container, Device]], context: Context
) -> Findings:
    """Yield the first share, or annotation, beside an annotation that asks another system."""
    if not pod.annotations:
        return
    asked = _share_annotations(pod, has_placeholders=context.operation is None)
    if not asked:
        return
    vendors = [request.vendor_for(pod.annotations) for request in asked]
    shares = [
        (device.name, container.name, container, vendors.index(device.resource.vendor))
        for container, device in requested
        if device.resource.sharing == "share" and device.resource.vendor in vendors
    ]
    if shares:
        name, _, container, number = min(shares, key=lambda share: share[:2])
        yield Finding(
            path=container.amount_path(name),
            key=f"annotation.{name}",
            message=f"{container} asks for {display(name)} and the pod for a share by the "
            f"annotation {asked[number].annotation}{SYSTEMS_FAULT}",
            container=container,
            help=SYSTEMS_ADVICE,
        )
        return
    first = asked[0].annotation
    other = next(
        (
            request.annotation
            for request, vendor in zip(asked[1:], vendors[1:], strict=True)
            if vendor == vendors[0]
        ),
        "",
    )
    if other:
        yield Finding(
            path=(*pod.metadata_path, "annotations", other),
            key=f"annotation.{other}",
            message=f"the pod asks for a share by the annotation {other} and for another by "
            f"{first}{SYSTEMS_FAULT}",
            help=SYSTEMS_ADVICE,
        )


def _share_annotations(pod: Pod, *, has_placeholders: bool) -> list[ShareRequest]:
    """Return the annotation by which the pod asks each system for a share, in alphabetical order.

    A share that another pod gets is none: TensorFusion starts a worker on a node of its own.

    Another scheduler than the pod's gives one if the profile has it, which may mean that a webhook
    names it, and if the label says so.
    """
    profile, found = pod.profile, dict[str, ShareRequest]()
    for scheduler, requests in profile.share_requests.items():
        if (
            scheduler == pod.scheduler
            or scheduler in profile.scheduler_names
            or any(request.label for request in requests)
        ):
            request = profile.share_request(
                pod.annotations, pod.labels, scheduler, has_placeholders=has_placeholders
            )
            if request is not None and not request.is_remote(pod.annotations):
                found[request.annotation] = request
    return [request for _, request in sorted(found.items())]


def _domain(device: Device) -> str:
    return device.name.partition("/")[0]


def _findings_of_several_vendors(container: Container) -> Findings:
    first: Device | None = None
    # Sorted, as API servers do not keep the order of a file.
    for _, device in sorted(devices(container).items()):
        if not device.is_requested or device.resource.vendor in COMBINABLE_VENDORS:
            continue
        first = first or device
        if device.resource.vendor != first.resource.vendor:
            message = (
                f"{container} asks for {display(first.name)} and {display(device.name)}"
                f"{VENDORS_FAULT}"
            )
            path, key = container.amount_path(device.name), f"vendors.{device.name}"
            yield Finding(
                path=path, key=key, message=message, container=container, help=VENDORS_ADVICE
            )
            return


def _exclude_each_other(share: Device, whole: Device) -> bool:
    return not matches_any(share.resource.companions, whole.name) and not matches_any(
        whole.resource.companions, share.name
    )


def _finding(container: Container, share: Device, whole: Device) -> Finding:
    message = (
        f"{container} asks for {display(share.name)} and the pod also for {display(whole.name)}"
        f"{MIX_FAULT}"
    )
    path = container.amount_path(share.name)
    return Finding(
        path=path, key=f"mixed.{share.name}", message=message, container=container, help=MIX_ADVICE
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(SHARE | SEVERAL_GPUS | GPU_ANNOTATION, OTHER_GPU_RESOURCE | GPU_ANNOTATION),
)
