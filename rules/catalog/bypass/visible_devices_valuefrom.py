"""A container takes its visible-devices variable from somewhere else.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the like of other vendors) in a container's `env` with
`valueFrom`: a ConfigMap, a Secret, a field of the pod, or a file. References by which the
estate itself hands out devices are left alone: those that a profile's own webhook writes,
and Huawei's to the annotation in which its scheduler notes the chosen devices. Under a
profile with such a webhook (`kai`) a tenant can forge its reference, and is not stopped.

Why it matters
--------------
What the variable says is not in the pod, so nobody can tell which GPUs the container will
get, and whoever may write the ConfigMap may change it later. It can say `all` as well as
any value that stands in the pod itself.

Fix safety
----------
In a container that asks for a GPU of the variable's vendor, or uses a resource claim, the
variable is removed, unasked: the device plugin sets the right one. In any other container
it is overwritten, `valueFrom` included, only if the policy says `fix: true`.

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
    hidden_value,
    hide_edits,
    is_for_requested_gpu,
    is_platform_reference,
    reference_kind,
    remove_edits,
    visibility,
)
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_VARIABLE


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable that is a reference and not the estate's own."""
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
