"""A pod that names its node lets its image decide which GPUs it gets.

What it does
------------
Finds in pods that set `nodeName` the containers that

- request a GPU, or another device that may be one,
- do not set `NVIDIA_VISIBLE_DEVICES`,
- and have an image that is known to set it to `all`, or the variables of an image that is older
  than it.

Not reported: pods that a DaemonSet creates, the mirror pods that kubelets create, and any pod that
exists already, because by then a scheduler may have assigned the node.

Why it matters
--------------
No scheduler compares the request with the node. A kubelet ignores a request for a resource that
its node does not have, such as `nvidia.com/mig-1g.5gb` where cards are whole. No device plugin then
sets the variable, and the container gets every GPU of the node by that of its image.

References
----------
- Kubernetes, `pkg/kubelet/lifecycle/predicate.go`, `removeMissingExtendedResources`
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from rules.base.json_values import as_text, display
from rules.base.traits import CUDA_IMAGE, GPU_VARIABLE, NODE_NAME
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import describe_request, name_of_unknown_device, uses_device_plugin
from rules.gpu.images import sets_visible_devices
from rules.gpu.visibility import is_unset, looks_like_legacy_image
from rules.in_process import images, requests
from rules.in_process.expression import (
    OBJECT,
    REQUEST,
    all_of,
    any_of,
    get,
    not_,
    text,
)
from rules.in_process.statement import CONTAINER, Statement, shown
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

FIELD = "nodeName"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container whose image decides if the kubelet drops its request."""
    node = as_text(pod.spec.get(FIELD))
    if not node or pod.exists or is_made_by_daemon_set(pod, context):
        return
    for container in pod.containers:
        if (
            (uses_device_plugin(container) or name_of_unknown_device(container))
            and is_unset(container)
            and (sets_visible_devices(container.image) or looks_like_legacy_image(container))
        ):
            yield _finding(pod, container, node)


def _finding(pod: Pod, container: Container, node: str) -> Finding:
    return Finding(
        path=(*pod.path, FIELD),
        key=f"{FIELD}.image",
        message=_message(container, describe_request(container), display(node)),
        container=container,
        help=_advice(display(node)),
    )


def _message(container: object, request: object, node: object) -> str:
    return (
        f"{container} {request}, and the pod names its node {node} itself: without this device "
        "the node ignores the request, and the image then gives the container every GPU"
    )


def _advice(node: object) -> str:
    return f"replace nodeName by `nodeSelector: {{kubernetes.io/hostname: {node}}}`"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, node = CONTAINER, get(OBJECT.spec, FIELD, "")
    is_new = all_of(REQUEST.operation == "CREATE", not_(OBJECT.isDaemon))
    may_ask_for_gpu = any_of(c.fromPlugin, requests.unknown_devices().size() > 0)
    shows_every_gpu = any_of(c.looksLegacy, images.sets_visible_devices(c))
    statement = Statement(
        "container",
        where=all_of(node != "", is_new, c.isUnset, may_ask_for_gpu, shows_every_gpu),
        message=text(_message(c.text, requests.describe_request(), shown(node))),
        help=text(_advice(shown(node))),
    )
    return (statement,)


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(NODE_NAME, CUDA_IMAGE | GPU_VARIABLE)
)
