"""A container takes its visible-devices variable from somewhere else.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the corresponding variables of other vendors) in a container's
`env` with `valueFrom`: a ConfigMap, a Secret, a field of the pod, or a file. Two references by
which the GPU platform itself hands out devices are not reported: those that a webhook named by
the profile writes (as in `kai`), and Huawei's to the annotation in which its scheduler records
the chosen devices. A tenant can forge both, and this rule does not prevent it.

Why it matters
--------------
The pod does not contain the value, so nobody can see which GPUs the container will get, and
whoever may write the ConfigMap can change the value later. The value can be `all`, like a value
in the pod itself.

Fix safety
----------
In a container that requests a GPU of the variable's vendor, the fix removes the variable by
default: the device plugin sets the right value. A resource claim counts as a GPU of NVIDIA. In a
container that requests only another vendor's GPU, the fix removes the variable only if the policy
says `fix: true`. In a container without a GPU, it overwrites the variable, including `valueFrom`,
also only with `fix: true`.

References
----------
- https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.finding import Action, Finding, Fix
from rules.gpu.devices import describe_request, requests_gpu
from rules.gpu.visibility import (
    VISIBILITY_VARIABLES,
    Visibility,
    is_for_requested_gpu,
    is_platform_reference,
    reference_kind,
    visibility,
)
from rules.gpu.visibility_edits import hidden_value, hide_edits, remove_edits
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_VARIABLE


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable that is a reference and not one that the GPU platform writes."""
    for container in pod.containers:
        for variable in VISIBILITY_VARIABLES:
            if (
                variable in container.env
                and visibility(container, variable) is Visibility.REFERENCE
                and not is_platform_reference(pod, container, variable)
            ):
                yield _finding(container, variable)


def _finding(container: Container, variable: str) -> Finding:
    source = reference_kind(container, variable)
    path = (*container.path, "env", container.env[variable][-1][0], "valueFrom")
    if requests_gpu(container):
        message = (
            f"{container} {describe_request(container)} and also takes {variable} from a {source}, "
            "which replaces the devices that it is allocated"
        )
        safe = is_for_requested_gpu(variable, container)
        fix = Fix(f"remove {variable}", remove_edits(container, variable), safe)
        advice = "remove the variable: the device plugin sets it"
    else:
        message = (
            f"{container} takes {variable} from a {source} without asking for a GPU: "
            "it may get devices that the scheduler has not counted"
        )
        fix = Fix(f"set {variable}={hidden_value(variable)}", hide_edits(container, variable))
        advice = (
            "remove the variable and ask for a GPU in resources.limits, "
            f"or set it to the value {hidden_value(variable)} in the pod itself"
        )
    return Finding(
        path=path, key=variable, message=message, container=container, help=advice, fix=fix
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
