"""A pod that names its node lets its image decide which GPUs it gets.

What it does
------------
Finds pods that set `nodeName`, in containers that request a GPU, do not set
`NVIDIA_VISIBLE_DEVICES`, and have an image that is known to set it to `all`, or the variables of an
image that is older than it. Not reported: pods that a DaemonSet creates, the mirror pods that
kubelets create, and any pod that exists already, because by then a scheduler may have assigned the
node.

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
from rules.base.traits import CUDA_IMAGE, GPU, GPU_VARIABLE, NODE_NAME
from rules.gpu.components import image_grants_gpus, is_made_by_daemon_set
from rules.gpu.devices import uses_device_plugin
from rules.gpu.visibility import is_unset, looks_like_legacy_image
from rules.in_process.statement import Statement, cel, concat, shown
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

FIELD = "nodeName"
_START = " asks for a GPU, and the pod names its node "
_EFFECT = (
    " itself: without this device the node ignores the request, and the image then gives the "
    "container every GPU"
)


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container whose image decides if the kubelet drops its request."""
    node = as_text(pod.spec.get(FIELD))
    if not node or pod.exists or is_made_by_daemon_set(pod, context):
        return
    for container in pod.containers:
        if (
            uses_device_plugin(container)
            and is_unset(container)
            and (image_grants_gpus(container, pod, context) or looks_like_legacy_image(container))
        ):
            yield _finding(pod, container, node)


def _finding(pod: Pod, container: Container, node: str) -> Finding:
    return Finding(
        path=(*pod.path, FIELD),
        key=f"{FIELD}.image",
        message=f"{container}{_START}{display(node)}{_EFFECT}",
        container=container,
        help=f"replace nodeName by `nodeSelector: {{kubernetes.io/hostname: {display(node)}}}`",
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    node = '$spec.?nodeName.orValue("")'
    where = (
        f'{node} != "" && request.operation == "CREATE" && !$isDaemon && c.fromPlugin && c.isUnset'
        " && (c.hasCudaImage || c.looksLegacy)"
    )
    message = concat(f"c.text + {cel(_START)}", shown(node), cel(_EFFECT))
    advice = concat(
        '"replace nodeName by `nodeSelector: {kubernetes.io/hostname: "', shown(node), '"}`"'
    )
    return (Statement("container", where, message, advice),)


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(NODE_NAME, GPU, CUDA_IMAGE | GPU_VARIABLE)
)
