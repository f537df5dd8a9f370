"""A container grants itself GPUs by a visible-devices variable.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the corresponding variables of other vendors) in a container's
`env` with a value that makes the container runtime inject devices: `all`, an index, a UUID, a CDI
name, or a value that the kubelet fills in at start. `void`, `none` and an empty value are fine.
These words must be in lower case: the runtime treats `VOID` as the name of a device.

Why it matters
--------------
The container gets GPUs that the scheduler has not counted, and shares them with the containers to
which they were allocated. In a container that requests a GPU, the variable replaces the device
plugin's choice, so the container gets the GPUs of other pods as well.

Fix safety
----------
In a container that requests a GPU of the variable's vendor, the fix removes the variable by
default: the device plugin sets the right value. A resource claim counts as a GPU of NVIDIA. In a
container that requests only another vendor's GPU, the fix removes the variable only if the policy
says `fix: true`. In a container without a GPU, it overwrites the variable with a value that hides
all devices, also only with `fix: true`: a refusal is clearer than a program that silently sees no
GPU.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
- ROCm container toolkit, `internal/oci/oci.go`
- https://github.com/NVIDIA/k8s-device-plugin/issues/61
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Action, Finding, Fix
from rules.gpu.devices import describe_request, requests_gpu
from rules.gpu.visibility import (
    NVIDIA,
    VISIBILITY_VARIABLES,
    Visibility,
    is_for_requested_gpu,
    visibility,
)
from rules.gpu.visibility_edits import hidden_value, hide_edits, remove_edits
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_VARIABLE


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable by which a container grants itself devices."""
    for container in pod.containers:
        for variable in VISIBILITY_VARIABLES:
            if variable in container.env and visibility(container, variable) is Visibility.GRANTED:
                yield _finding(container, variable)


def _finding(container: Container, variable: str) -> Finding:
    value = container.value_of(variable) or ""
    setting = f"{variable}={display(value)}"
    path = (*container.path, "env", container.env[variable][-1][0], "value")
    if requests_gpu(container):
        message = (
            f"{container} {describe_request(container)} and also sets {setting}, "
            "which gives it other devices than it is allocated"
        )
        safe = is_for_requested_gpu(variable, container)
        fix = Fix(f"remove {variable}", remove_edits(container, variable), safe)
        advice = "remove the variable: the device plugin sets it"
    else:
        message = f"{container} sets {setting} without asking for a GPU: {_effect(variable, value)}"
        fix = Fix(f"set {variable}={hidden_value(variable)}", hide_edits(container, variable))
        advice = (
            f"remove the variable and ask for a GPU in resources.limits{_example(variable)}, "
            f"or set the variable to {hidden_value(variable)}"
        )
    return Finding(
        path=path, key=variable, message=message, container=container, help=advice, fix=fix
    )


def _example(variable: str) -> str:
    return " (such as nvidia.com/gpu: 1)" if variable == NVIDIA else ""


def _effect(variable: str, value: str) -> str:
    word = value.strip().lower()
    if variable == NVIDIA and word in ("all", "none", "void") and word != value.strip():
        return f"it cannot start, because only {display(word)} in lower case has a special meaning"
    return "it gets devices that the scheduler has not counted"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
