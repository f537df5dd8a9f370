"""A pod names a GPU runtime class and asks for no GPU.

What it does
------------
Finds pods whose `runtimeClassName` is one of the profile's GPU runtime classes (such as `nvidia`,
`nvidia-cdi` and `nvidia-legacy`), while no container requests a GPU or uses a resource claim.

Why it matters
--------------
The runtime class makes the runtime obey NVIDIA_VISIBLE_DEVICES, which many images set to `all`.
Such a pod may get every GPU of its node, although the scheduler has counted none.

References
----------
- https://kubernetes.io/docs/concepts/containers/runtime-class/
- https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Action, Finding
from rules.gpu.advice import REQUEST_IN_LIMITS
from rules.gpu.devices import pod_requests_gpu, uses_gpu_runtime
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import RUNTIME_CLASS

FIELD = "runtimeClassName"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the GPU runtime class of a pod that requests no GPU."""
    if pod.is_partial:
        return  # the rest of the pod may ask for the GPU
    if FIELD in pod.spec and uses_gpu_runtime(pod) and not pod_requests_gpu(pod):
        message = (
            f"the pod names the runtime class {display(pod.spec[FIELD])} and none of its "
            "containers asks for a GPU: they may get GPUs that the scheduler has not counted"
        )
        advice = f"remove runtimeClassName, or {REQUEST_IN_LIMITS}"
        yield Finding(path=(*pod.path, FIELD), key=FIELD, message=message, help=advice)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(RUNTIME_CLASS,))
