"""A pod annotation asks the runtime for CDI devices.

What it does
------------
Finds annotations of the pod whose key begins with `cdi.k8s.io/` and whose value names a device.
The device plugin annotates containers, never pods, so a user wrote the annotation.

Why it matters
--------------
The annotation names devices that the scheduler has not counted. Plain containerd ignores it on a
pod. Kata Containers reads it and attaches the devices to the pod's virtual machine. CRI-O hands
every annotation of a pod to the runtime, and NVIDIA's reads this one before the variable
`NVIDIA_VISIBLE_DEVICES`: not even `void` hides the devices then. The rule therefore denies a pod
with a runtime class of Kata or of a GPU platform, and otherwise warns.

Fix safety
----------
The fix removes the annotation only if the policy says `fix: true`: the program may need the
device, and a message is clearer than a program that silently runs without it.

References
----------
- NVIDIA container toolkit, `nvidia-container-runtime.modes.cdi.annotation-prefixes`
- NVIDIA container toolkit, `internal/config/image`, `VisibleDevices`
- cri-o/cri-o, `internal/factory/container`, `SpecAddAnnotations`
- https://github.com/containerd/containerd/issues/7329
- https://github.com/kata-containers/kata-containers/issues/11624
"""

from rules.base.json_values import as_text, display, remove
from rules.base.traits import GPU_METADATA_KEY
from rules.gpu.devices import uses_gpu_runtime
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE
from rules.in_process.expression import OBJECT, all_of, any_of, choose, get, text
from rules.in_process.statement import KEY, Statement, shown
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

CDI_PREFIX = "cdi.k8s.io/"
KATA_RUNTIME = "kata"
ADVICE = f"remove the annotation and {REQUEST_IN_LIMITS_ADVICE}"
IN_KATA, ON_NODES_WITH_CRIO = ", and", ", and on a node with CRI-O"
NOT_ATTACHED = ", which only some runtimes ignore and the scheduler has not counted"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each CDI annotation of the pod that names a device."""
    for key, value in pod.annotations.items():
        if key.startswith(CDI_PREFIX) and as_text(value).strip():
            yield _finding(pod, key, as_text(value))


def _finding(pod: Pod, key: str, value: str) -> Finding:
    runtime_class = as_text(pod.spec.get("runtimeClassName"))
    path = (*pod.metadata_path, "annotations", key)
    fix = Fix(f"remove the annotation {display(key)}", (remove(path),))
    is_kata = KATA_RUNTIME in runtime_class
    action, effect = Action.WARN, NOT_ATTACHED
    if is_kata or uses_gpu_runtime(pod):
        action = Action.DENY
        effect = _attachment(IN_KATA if is_kata else ON_NODES_WITH_CRIO, display(runtime_class))
    message = _message(display(key), display(value), effect)
    return Finding(path=path, key=key, message=message, help=ADVICE, fix=fix, action=action)


def _message(key: object, value: object, effect: object) -> str:
    return f"the pod's annotation {key} asks for the CDI devices {value}{effect}"


def _attachment(where: object, runtime_class: object) -> str:
    return (
        f"{where} the runtime class {runtime_class} attaches them, "
        "though the scheduler has not counted them"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    key, value = KEY, OBJECT.annotations[KEY]
    runtime_class = get(OBJECT.spec, "runtimeClassName", "")
    is_kata = runtime_class.contains(KATA_RUNTIME)
    is_attached = any_of(is_kata, OBJECT.usesGpuRuntime)
    where = choose((is_kata, IN_KATA), otherwise=ON_NODES_WITH_CRIO)
    attachment = text(_attachment(where, shown(runtime_class)))
    effect = choose((is_attached, attachment), otherwise=NOT_ATTACHED)
    statement = Statement(
        "annotation",
        where=all_of(key.startsWith(CDI_PREFIX), value.trim() != ""),
        message=text(_message(shown(key), shown(value), effect)),
        help=ADVICE,
        action=choose((is_attached, "deny"), otherwise="warn"),
    )
    return (statement,)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_METADATA_KEY,))
