"""A debug container runs a CUDA image on a GPU node.

What it does
------------
Finds ephemeral containers whose image is known to set NVIDIA_VISIBLE_DEVICES=all itself
and that do not say what they may see, in pods that hold a GPU or select GPU nodes. What
such a container writes into its own environment is judged by the rules for any container.

Why it matters
--------------
An ephemeral container cannot ask for a GPU: Kubernetes forbids it `resources`. Where the
image's own variable is obeyed it sees every GPU of the node, those of other pods as well.

Fix safety
----------
NVIDIA_VISIBLE_DEVICES is set to `void` only if the policy says `fix: true`: somebody may
have attached the container to look at the GPU.

References
----------
- https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/
- https://github.com/NVIDIA/k8s-device-plugin/issues/61
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Action, Finding, Fix
from rules.gpu.devices import requests_gpu
from rules.gpu.images import is_cuda_image
from rules.gpu.visibility import NVIDIA, hide_edits, is_unset, looks_legacy
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import is_for_gpus
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import CUDA_IMAGE, EPHEMERAL


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each ephemeral container whose image brings the variable along."""
    found = [c for c in pod.containers if c.role == "ephemeral" and _lets_the_image_decide(c)]
    if found and is_for_gpus(pod):
        yield from (_finding(container) for container in found)


def _finding(container: Container) -> Finding:
    message = (
        f"{container} runs the CUDA image {display(container.image)} on a GPU node and does not "
        f"set {NVIDIA}: it may see every GPU of the node"
    )
    advice = f"add `- {{name: {NVIDIA}, value: void}}` to its env, or use another image"
    fix = Fix(f"set {NVIDIA}=void", hide_edits(container))
    return Finding(
        path=(*container.path, "image"),
        key="image",
        message=message,
        container=container,
        help=advice,
        fix=fix,
    )


def _lets_the_image_decide(container: Container) -> bool:
    return (
        is_cuda_image(container.image)
        and is_unset(container)
        and not requests_gpu(container)
        and not looks_legacy(container)
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(EPHEMERAL, CUDA_IMAGE))
