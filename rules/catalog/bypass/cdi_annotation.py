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
from rules.in_process.statement import Statement, cel, shown
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

CDI_PREFIX = "cdi.k8s.io/"
KATA_RUNTIME = "kata"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each CDI annotation of the pod that names a device."""
    for key, value in pod.annotations.items():
        if key.startswith(CDI_PREFIX) and as_text(value).strip():
            yield _finding(pod, key, as_text(value))


def _finding(pod: Pod, key: str, value: str) -> Finding:
    runtime_class = as_text(pod.spec.get("runtimeClassName"))
    path = (*pod.metadata_path, "annotations", key)
    fix = Fix(f"remove the annotation {display(key)}", (remove(path),))
    advice = f"remove the annotation and {REQUEST_IN_LIMITS_ADVICE}"
    request = f"the pod's annotation {display(key)} asks for the CDI devices {display(value)}"
    if KATA_RUNTIME in runtime_class or uses_gpu_runtime(pod):
        where = "" if KATA_RUNTIME in runtime_class else "on a node with CRI-O "
        message = (
            f"{request}, and {where}the runtime class {display(runtime_class)} attaches them, "
            "though the scheduler has not counted them"
        )
        return Finding(path=path, key=key, message=message, help=advice, fix=fix)
    message = f"{request}, which only some runtimes ignore and the scheduler has not counted"
    return Finding(path=path, key=key, message=message, help=advice, fix=fix, action=Action.WARN)


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    where = f'a.startsWith({cel(CDI_PREFIX)}) && $annotations[a].trim() != ""'
    runtime_class = '$spec.?runtimeClassName.orValue("")'
    is_kata = f"{runtime_class}.contains({cel(KATA_RUNTIME)})"
    request = (
        f'"the pod\'s annotation " + {shown("a")} + " asks for the CDI devices "'
        f" + {shown('$annotations[a]')}"
    )
    attached = (
        f'({is_kata} ? ", and" : ", and on a node with CRI-O") + " the runtime class "'
        f' + {shown(runtime_class)} + " attaches them, though the scheduler has not counted them"'
    )
    is_attached = f"({is_kata} || $usesGpuRuntime)"
    ignored = cel(", which only some runtimes ignore and the scheduler has not counted")
    message = f"{request} + ({is_attached} ? {attached} : {ignored})"
    advice = cel(f"remove the annotation and {REQUEST_IN_LIMITS_ADVICE}")
    action = f'({is_attached} ? "deny" : "warn")'
    return (Statement("annotation", where, message, advice, action),)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_METADATA_KEY,))
