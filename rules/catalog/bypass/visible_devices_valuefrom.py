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

from rules.container import Container
from rules.context import Context
from rules.devices import asks_for, holds_gpu
from rules.pod import Pod
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import VARIABLE
from rules.visibility import (
    GRANTING,
    Visibility,
    concerns,
    hiding,
    is_injected,
    reference_kind,
    removal,
    visibility,
    voiding,
)


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable that is a reference and not the estate's own."""
    for container in pod.containers:
        for variable in GRANTING:
            if (
                variable in container.env
                and visibility(container, variable) is Visibility.REFERENCE
                and not is_injected(container, variable)
            ):
                yield _finding(container, variable)


def _finding(container: Container, variable: str) -> Finding:
    source = reference_kind(container, variable)
    path = (*container.path, "env", container.env[variable][-1][0], "valueFrom")
    if holds_gpu(container):
        message = (
            f"{container} {asks_for(container)} and also takes {variable} from a {source}, "
            "which replaces the devices that it is allocated"
        )
        safe = concerns(variable, container)
        fix = Fix(f"remove {variable}", removal(container, variable), safe)
        advice = "remove the variable: the device plugin sets it"
    else:
        message = (
            f"{container} takes {variable} from a {source} without asking for a GPU: "
            "it may get devices that the scheduler has not counted"
        )
        fix = Fix(f"set {variable}={hiding(variable)}", voiding(container, variable))
        advice = (
            "remove the variable and ask for a GPU in resources.limits, "
            f"or set it to the value {hiding(variable)} in the pod itself"
        )
    return Finding(path, variable, message, container, advice, fix)


RULE = Rule(
    name="visible-devices-valuefrom",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="a container takes its visible-devices variable from somewhere else",
    check=check,
    needs=(VARIABLE,),
)
