"""A debug container runs a CUDA image on a GPU node.

What it does
------------
Checks pods that request a GPU or select GPU nodes, unless no such node has cards of NVIDIA. Finds
ephemeral containers whose image is known to set NVIDIA_VISIBLE_DEVICES=all and that do not set the
variable themselves. If such a container does set the variable, the rules for all containers check
its value.

Why it matters
--------------
Kubernetes forbids `resources` in an ephemeral container, so it cannot request a GPU. Where the
runtime obeys the image's variable, the container sees every GPU of the node, including those of
other pods.

Fix safety
----------
The fix sets NVIDIA_VISIBLE_DEVICES to `void` only if the policy says `fix: true`: a user may have
attached the container in order to look at the GPU. With `voidEveryContainer: true` the rule
`image-default-all` sets it for every ephemeral container.

References
----------
- https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/
- https://github.com/NVIDIA/k8s-device-plugin/issues/61
"""

from rules.base.json_values import display
from rules.base.traits import CUDA_IMAGE, EPHEMERAL_CONTAINER
from rules.gpu.devices import requests_gpu
from rules.gpu.images import is_cuda_image
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    hide_edits,
    is_unset,
    looks_like_legacy_image,
)
from rules.in_process.expression import OBJECT, all_of, not_, text
from rules.in_process.statement import CONTAINER, Statement, shown
from rules.placement.gpu_nodes import excludes_nvidia, is_for_gpus
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

ADVICE = f"add `- {{name: {NVIDIA_VISIBLE_DEVICES}, value: void}}` to its env, or use another image"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each ephemeral container for which the image sets the variable."""
    containers = [c for c in pod.containers if c.role == "ephemeral" and _lets_the_image_decide(c)]
    if containers and is_for_gpus(pod) and not excludes_nvidia(pod):
        yield from (_finding(container) for container in containers)


def _finding(container: Container) -> Finding:
    return Finding(
        path=(*container.path, "image"),
        key="image",
        message=_message(container, display(container.image)),
        container=container,
        help=ADVICE,
        fix=Fix(f"set {NVIDIA_VISIBLE_DEVICES}=void", hide_edits(container)),
    )


def _message(container: object, image: object) -> str:
    return (
        f"{container} runs the CUDA image {image} on a GPU node and does "
        f"not set {NVIDIA_VISIBLE_DEVICES}: it may see every GPU of the node"
    )


def _lets_the_image_decide(container: Container) -> bool:
    return (
        is_cuda_image(container.image)
        and is_unset(container)
        and not requests_gpu(container)
        and not looks_like_legacy_image(container)
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c = CONTAINER
    where = all_of(
        c.role == "ephemeral",
        OBJECT.isForGpus,
        not_(OBJECT.excludesNvidia),
        c.isUnset,
        not_(c.requestsGpu),
        not_(c.looksLegacy),
        c.hasCudaImage,
    )
    return (Statement("container", where, text(_message(c.text, shown(c.image))), ADVICE),)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(EPHEMERAL_CONTAINER, CUDA_IMAGE))
