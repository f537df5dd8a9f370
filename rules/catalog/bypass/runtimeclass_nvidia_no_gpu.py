"""A pod names a GPU runtime class and asks for no GPU.

What it does
------------
Finds pods whose `runtimeClassName` is one of the profile's GPU runtime classes (such as `nvidia`,
`nvidia-cdi` and `nvidia-legacy`), while no container requests a GPU or uses a resource claim. If
the RuntimeClass is among the manifests of the same run, or in the webhook's inventory, its
`handler` counts as well, which is the name by which the container runtime knows it.

Not reported: pods of which every container hides NVIDIA's GPUs by `NVIDIA_VISIBLE_DEVICES`, such as
`void`.

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
from rules.gpu.devices import gpu_handler, means_unrequested_gpu, uses_gpu_runtime
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    REQUEST_IN_LIMITS_ADVICE,
    VOID_VALUE,
    Visibility,
    visibility,
)
from rules.in_process import nodes
from rules.in_process.expression import OBJECT, Expression, all_of, choose, is_in, not_, text
from rules.in_process.statement import Statement, shown
from rules.placement.gpu_nodes import names_other_accelerator
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

FIELD = "runtimeClassName"
ADVICE = f"remove runtimeClassName, or {REQUEST_IN_LIMITS_ADVICE}"
# Only NVIDIA's runtime reads the variable.
ADVICE_FOR_NVIDIA = f"{ADVICE}, or set {NVIDIA_VISIBLE_DEVICES}={VOID_VALUE} in every container"
_WITHOUT_DEVICES = (Visibility.HIDDEN, Visibility.DRIVER_ONLY)


def check(pod: Pod, context: Context) -> Findings:
    """Yield the GPU runtime class of a pod that requests no GPU."""
    if pod.is_partial:
        return  # the rest of the pod may ask for the GPU
    if means_unrequested_gpu(pod, context.inventory) and not _hides_every_gpu(pod):
        named = display(pod.spec[FIELD])
        if not uses_gpu_runtime(pod):
            named += f", whose handler is {gpu_handler(pod, context.inventory)},"
        is_other = names_other_accelerator(as_text(pod.spec[FIELD]))
        advice = ADVICE if is_other else ADVICE_FOR_NVIDIA
        yield Finding(path=(*pod.path, FIELD), key=FIELD, message=_message(named), help=advice)


def _message(runtime_class: object) -> str:
    return (
        f"the pod names the runtime class {runtime_class} and none of its containers asks for a "
        "GPU: they may get GPUs that the scheduler has not counted"
    )


def _hides_every_gpu(pod: Pod) -> bool:
    """Return whether every container hides the GPUs that the runtime class injects."""
    if names_other_accelerator(as_text(pod.spec[FIELD])):
        return False  # its runtime does not read NVIDIA's variable
    containers = pod.containers
    return bool(containers) and all(visibility(c) in _WITHOUT_DEVICES for c in containers)


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    runtime_class = OBJECT.spec.runtimeClassName
    is_other = nodes.names_other_accelerator(runtime_class)
    hides_every_gpu = all_of(
        not_(is_other), OBJECT.containers.size() > 0, OBJECT.containers.all(_hides_gpus_in_cel)
    )
    statement = Statement(
        "pod",
        where=all_of(OBJECT.usesGpuRuntime, not_(OBJECT.requestsGpu), not_(hides_every_gpu)),
        message=text(_message(shown(runtime_class))),
        help=choose((is_other, ADVICE), otherwise=ADVICE_FOR_NVIDIA),
        leaves_out="it knows no handlers of RuntimeClasses, which are other objects",
    )
    return (statement,)


def _hides_gpus_in_cel(container: Expression) -> Expression:
    """Return whether the variable of `container` hides NVIDIA's GPUs."""
    states = [state.value for state in _WITHOUT_DEVICES]
    return container.variables.exists(
        lambda v: all_of(v.name == NVIDIA_VISIBLE_DEVICES, is_in(v.state, states))
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(RUNTIME_CLASS,))
