"""A pod names a GPU runtime class and asks for no GPU.

What it does
------------
Finds pods whose `runtimeClassName` is one of the profile's GPU runtime classes (`nvidia`,
`nvidia-cdi`, `nvidia-legacy`), while no container asks for a GPU or uses a claim.

Why it matters
--------------
The runtime class makes the runtime obey NVIDIA_VISIBLE_DEVICES, which many images set to
`all` themselves. Such a pod may get every GPU of its node, and the scheduler counted none.

References
----------
- https://kubernetes.io/docs/concepts/containers/runtime-class/
- https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.devices import pod_holds_gpu, uses_gpu_runtime
from rules.pod import Pod
from rules.reading import shown
from rules.rule import Action, Finding, Rule
from rules.traits import RUNTIME_CLASS

FIELD = "runtimeClassName"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the runtime class of a pod that has no use for it."""
    if FIELD in pod.spec and uses_gpu_runtime(pod) and not pod_holds_gpu(pod):
        message = (
            f"the pod names the runtime class {shown(pod.spec[FIELD])} and none of its containers "
            "asks for a GPU: they may get GPUs that the scheduler has not counted"
        )
        advice = (
            "remove runtimeClassName, or ask for the GPU in resources.limits "
            "(such as nvidia.com/gpu: 1)"
        )
        yield Finding((*pod.path, FIELD), FIELD, message, help=advice)


RULE = Rule(
    name="runtimeclass-nvidia-no-gpu",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    summary="a pod names a GPU runtime class and asks for no GPU",
    check=check,
    needs=(RUNTIME_CLASS,),
)
