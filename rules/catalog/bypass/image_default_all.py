"""A container without a GPU leaves it to its image whether it sees all of them.

What it does
------------
Finds a container that asks for no GPU and says nothing of `NVIDIA_VISIBLE_DEVICES`, where
the image is likely to say `all` and a GPU is likely to be near: the image is a known CUDA
image, or the pod uses a GPU runtime class, selects GPU nodes, or holds a GPU in another
container. Ephemeral containers are the business of another rule.

Why it matters
--------------
NVIDIA's CUDA images, and those built on them, set `NVIDIA_VISIBLE_DEVICES=all` themselves.
On a node where NVIDIA's runtime is the default one such a container sees every GPU
without having asked for any, unless the pod says otherwise.

Fix safety
----------
`NVIDIA_VISIBLE_DEVICES=void` is added, unasked, where the pod will be made as it stands. In a
custom resource and a PodTemplate, whose users may add the GPU, and to an agent that a
DaemonSet puts on GPU nodes, it is added only if the policy says `fix: true`.

Options
-------
`every_container` is set by `voidEveryContainer: true` in the policy: then every container
that asks for no GPU and says nothing gets the explicit value, whatever its image.

References
----------
- https://github.com/NVIDIA/k8s-device-plugin/issues/87
- https://github.com/NVIDIA/k8s-device-plugin/issues/195
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Action, Finding, Fix
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import pod_requests_gpu, requests_gpu, uses_gpu_runtime
from rules.gpu.images import is_cuda_image
from rules.gpu.visibility import NVIDIA, hide_edits, is_unset, looks_legacy
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import targets_gpu_nodes
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import CUDA_IMAGE, GPU_OR_NODE_CONSTRAINT, RUNTIME_CLASS

SELECTS = "the pod selects GPU nodes"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield each container that should say that it wants no GPU."""
    reason, every = _pods_reason(pod), context.options.get("every_container")
    if not reason and every:
        reason = "the policy wants every container to say so"
    for container in pod.containers:
        why = reason
        if is_cuda_image(container.image):
            why = f"its image {display(container.image)} is known to set it to all"
        if (
            why
            and container.role != "ephemeral"
            and container.image  # without one it is a patch of a container that is not here
            and is_unset(container)
            and not requests_gpu(container)
            and not looks_legacy(container)
        ):
            # An agent on GPU nodes may be there to see them all, unless the policy knows better.
            agent = why == SELECTS and is_made_by_daemon_set(pod, context)
            yield _finding(container, why, safe=pod.is_final and bool(every or not agent))


def _pods_reason(pod: Pod) -> str:
    """Why a GPU is likely to be near every container of `pod`; empty if it is not."""
    if uses_gpu_runtime(pod):
        return f"the pod uses the runtime class {display(pod.spec['runtimeClassName'])}"
    if pod_requests_gpu(pod):
        return "another container of the pod asks for a GPU"
    return SELECTS if targets_gpu_nodes(pod) else ""


def _finding(container: Container, why: str, *, safe: bool) -> Finding:
    message = f"{container} asks for no GPU and does not set {NVIDIA}=void, although {why}"
    fix = Fix(f"set {NVIDIA}=void", hide_edits(container), safe=safe)
    advice = f"add {NVIDIA} with the value void to env"
    return Finding(
        path=(*container.path, "env"),
        key=NVIDIA,
        message=message,
        container=container,
        help=advice,
        fix=fix,
    )


RULE = define_rule(
    check,
    action=Action.AUDIT,
    since="0.1",
    needs=(GPU_OR_NODE_CONSTRAINT | RUNTIME_CLASS | CUDA_IMAGE,),
    options={"every_container": False},
)
