"""A pod annotation asks the runtime for CDI devices.

What it does
------------
Finds annotations of the pod whose key begins with `cdi.k8s.io/` and whose value names a device.
The device plugin annotates containers, never pods, so a user wrote the annotation.

Why it matters
--------------
The annotation names devices that the scheduler has not counted. Plain containerd ignores it on a
pod. Kata Containers reads it and attaches the devices to the pod's virtual machine. The rule
therefore denies a pod with a Kata runtime class, and otherwise warns.

Fix safety
----------
The fix removes the annotation only if the policy says `fix: true`: the program may need the
device, and a message is clearer than a program that silently runs without it.

References
----------
- NVIDIA container toolkit, `nvidia-container-runtime.modes.cdi.annotation-prefixes`
- https://github.com/containerd/containerd/issues/7329
- https://github.com/kata-containers/kata-containers/issues/11624
"""

from rules.base.json_values import as_text, display, remove
from rules.base.traits import GPU_METADATA_KEY
from rules.gpu.visibility_edits import REQUEST_IN_LIMITS_ADVICE
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
    if KATA_RUNTIME in runtime_class:
        message = (
            f"{request}, and the runtime class {display(runtime_class)} attaches them, "
            "though the scheduler has not counted them"
        )
        return Finding(path=path, key=key, message=message, help=advice, fix=fix)
    message = f"{request}, which only some runtimes ignore and the scheduler has not counted"
    return Finding(path=path, key=key, message=message, help=advice, fix=fix, action=Action.WARN)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_METADATA_KEY,))
