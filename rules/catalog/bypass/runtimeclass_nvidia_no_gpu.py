"""A pod names a GPU runtime class and asks for no GPU.

What it does
------------
Finds pods whose `runtimeClassName` is one of the profile's GPU runtime classes (such as `nvidia`,
`nvidia-cdi` and `nvidia-legacy`), while no container requests a GPU or uses a resource claim. If
the RuntimeClass is among the manifests of the same run, or in the webhook's inventory, its
`handler` counts as well, which is the name by which the container runtime knows it.

Why it matters
--------------
The runtime class makes the runtime obey NVIDIA_VISIBLE_DEVICES, which many images set to `all`.
Such a pod may get every GPU of its node, although the scheduler has counted none.

References
----------
- https://kubernetes.io/docs/concepts/containers/runtime-class/
- https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/
"""

from rules.base.json_values import as_text, display
from rules.base.traits import RUNTIME_CLASS
from rules.gpu.devices import pod_requests_gpu, uses_gpu_runtime
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE
from rules.in_process.statement import Statement, cel, shown
from rules.inventory.inventory import RuntimeClass
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

FIELD = "runtimeClassName"


def check(pod: Pod, context: Context) -> Findings:
    """Yield the GPU runtime class of a pod that requests no GPU."""
    if pod.is_partial:
        return  # the rest of the pod may ask for the GPU
    known = context.inventory.find(RuntimeClass, as_text(pod.spec.get(FIELD)))
    has_handler = known is not None and known.handler in pod.profile.runtime_classes
    if FIELD in pod.spec and (uses_gpu_runtime(pod) or has_handler) and not pod_requests_gpu(pod):
        named = display(pod.spec[FIELD])
        if known and has_handler and not uses_gpu_runtime(pod):
            named += f", whose handler is {known.handler},"
        message = (
            f"the pod names the runtime class {named} and none of its "
            "containers asks for a GPU: they may get GPUs that the scheduler has not counted"
        )
        advice = f"remove runtimeClassName, or {REQUEST_IN_LIMITS_ADVICE}"
        yield Finding(path=(*pod.path, FIELD), key=FIELD, message=message, help=advice)


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    message = (
        f'"the pod names the runtime class " + {shown("$spec.runtimeClassName")}'
        ' + " and none of its containers asks for a GPU: they may get GPUs that the scheduler has'
        ' not counted"'
    )
    advice = cel(f"remove runtimeClassName, or {REQUEST_IN_LIMITS_ADVICE}")
    missing = "it knows no handlers of RuntimeClasses, which are other objects"
    where = "$usesGpuRuntime && !$requestsGpu"
    return (Statement("pod", where, message, advice, leaves_out=missing),)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(RUNTIME_CLASS,))
