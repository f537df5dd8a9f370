"""A pod annotation asks the runtime for CDI devices.

What it does
------------
Finds annotations of the pod whose key begins with `cdi.k8s.io/` and whose value names a
device. The device plugin annotates containers, never pods, so somebody wrote it by hand.

Why it matters
--------------
The annotation names devices that the scheduler never counted. Plain containerd ignores it
on a pod, but Kata Containers reads it and attaches the devices to the pod's virtual
machine, so with a Kata runtime class the rule denies and otherwise it warns.

Fix safety
----------
The annotation is removed only if the policy says `fix: true`: the pod may count on the
device, and a message is clearer than a program that silently misses it.

References
----------
- NVIDIA container toolkit, `nvidia-container-runtime.modes.cdi.annotation-prefixes`
- https://github.com/containerd/containerd/issues/7329
- https://github.com/kata-containers/kata-containers/issues/11624
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.document import remove
from rules.pod import Pod
from rules.reading import shown, text
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import KEY

PREFIX = "cdi.k8s.io/"
KATA = "kata"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each CDI annotation of the pod that names a device."""
    for key, value in pod.annotations.items():
        if key.startswith(PREFIX) and text(value).strip():
            yield _finding(pod, key, text(value))


def _finding(pod: Pod, key: str, value: str) -> Finding:
    runtime_class = text(pod.spec.get("runtimeClassName"))
    path = (*pod.metadata_path, "annotations", key)
    fix = Fix(f"remove the annotation {shown(key)}", (remove(path),))
    advice = (
        "remove the annotation and ask for the GPU in resources.limits (such as nvidia.com/gpu: 1)"
    )
    asks = f"the pod's annotation {shown(key)} asks for the CDI devices {shown(value)}"
    if KATA in runtime_class:
        message = (
            f"{asks}, and the runtime class {shown(runtime_class)} attaches them, "
            "though the scheduler has not counted them"
        )
        return Finding(path, key, message, help=advice, fix=fix)
    message = f"{asks}, which only some runtimes ignore and the scheduler has not counted"
    return Finding(path, key, message, help=advice, fix=fix, action=Action.WARN)


RULE = Rule(
    name="cdi-annotation",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="a pod annotation asks the runtime for CDI devices",
    check=check,
    needs=(KEY,),
)
