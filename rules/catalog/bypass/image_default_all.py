"""A container without a GPU leaves it to its image whether it sees all of them.

What it does
------------
Finds a container that requests no GPU and does not set `NVIDIA_VISIBLE_DEVICES`, if the image is
likely to set it to `all` or the node is likely to have a GPU: the image is a known CUDA image, or
the pod uses a GPU runtime class, selects GPU nodes, or requests a GPU in another container. The
rule `ephemeral-gpu` checks ephemeral containers. The images of NVIDIA's agents, such as
`dcgm-exporter`, count as CUDA images, but not in a DaemonSet's pods.

Why it matters
--------------
NVIDIA's CUDA images, and images built on them, set `NVIDIA_VISIBLE_DEVICES=all`. On a node whose
default runtime is NVIDIA's, such a container sees every GPU without having requested one, unless
the pod sets another value.

Fix safety
----------
The fix adds `NVIDIA_VISIBLE_DEVICES=void` by default in pods that are created exactly as written.
It needs `fix: true` in the policy in a custom resource or a PodTemplate, whose users may add the
GPU; and in a DaemonSet's pod that is reported only because it selects GPU nodes or uses a GPU
runtime class, because such a pod may be an agent that needs to see every GPU.

Options
-------
`every_container`: report every container that requests no GPU and does not set the variable,
whatever its image; the fix is then made by default in pods of a DaemonSet too. The policy sets
the option by `voidEveryContainer: true`.

References
----------
- https://github.com/NVIDIA/k8s-device-plugin/issues/87
- https://github.com/NVIDIA/k8s-device-plugin/issues/195
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Action, Finding, Fix
from rules.gpu.components import is_made_by_daemon_set, shows_gpus
from rules.gpu.devices import pod_requests_gpu, requests_gpu, uses_gpu_runtime
from rules.gpu.visibility import NVIDIA, is_unset, looks_legacy
from rules.gpu.visibility_edits import hide_edits
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import targets_gpu_nodes
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import CUDA_IMAGE, GPU_OR_NODE_CONSTRAINT, RUNTIME_CLASS


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield each container that requests no GPU and should hide all GPUs."""
    reason, every = _pods_reason(pod), context.options.get("every_container")
    if not reason and every:
        reason = "the policy wants every container to say so"
    may_be_agent = is_made_by_daemon_set(pod, context) and not pod_requests_gpu(pod)
    for container in pod.containers:
        why, agent = reason, may_be_agent
        if shows_gpus(container, pod, context):
            why, agent = f"its image {display(container.image)} is known to set it to all", False
        if (
            why
            and container.role != "ephemeral"
            and container.image  # without an image this is a patch of a container in another file
            and is_unset(container)
            and not requests_gpu(container)
            and not looks_legacy(container)
        ):
            # An agent may need to see every GPU of its node, unless the policy says otherwise.
            yield _finding(container, why, safe=pod.is_final and bool(every or not agent))


def _pods_reason(pod: Pod) -> str:
    """Why the node of `pod` is likely to have a GPU; empty if it is not likely."""
    if uses_gpu_runtime(pod):
        return f"the pod uses the runtime class {display(pod.spec['runtimeClassName'])}"
    if pod_requests_gpu(pod):
        return "another container of the pod asks for a GPU"
    return "the pod selects GPU nodes" if targets_gpu_nodes(pod) else ""


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
