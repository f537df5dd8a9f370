"""A container takes its visible-devices variable from somewhere else.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the corresponding variables of other makers) in a container's
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
In a container that requests a GPU of the variable's maker from a device plugin, the fix removes the
variable by default: the device plugin sets the right value. In a container that uses only resource
claims or device classes, it sets `NVIDIA_VISIBLE_DEVICES` to `void` by default in pods that are
created exactly as written: CDI injects these devices, which `void` does not stop. In a container
that requests only another maker's GPU, the fix removes the variable only if the policy says
`fix: true`. In a container without a GPU, it overwrites the variable, including `valueFrom`, also
only with `fix: true`.

References
----------
- https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.traits import GPU_VARIABLE
from rules.gpu.devices import describe_request, requests_gpu
from rules.gpu.visibility import (
    Visibility,
    action_beside_request,
    advice_beside_request,
    display_variable,
    hiding_value,
    is_platform_reference,
    message_about_foreign_variable,
    reference_kind,
    remove_and_request_advice,
    request_of_other_maker,
    visibility,
    visibility_fix,
    visible_variables,
)
from rules.in_process.mutation import visibility_mutations
from rules.in_process.statement import Mutation, Statement, cel, concat
from rules.in_process.variables import advice_beside_request as advise_beside_request
from rules.in_process.variables import foreign_message, is_beside_request
from rules.in_process.variables import is_platform_reference as is_of_platform
from rules.in_process.variables import remove_and_request_advice as advise
from rules.profile.profile import Profile, VisibleDevices
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable that is a reference and not one that the GPU platform writes."""
    for container in pod.containers:
        for variable, known in visible_variables(container).items():
            is_reference = visibility(container, variable) is Visibility.REFERENCE
            if is_reference and not is_platform_reference(pod, container, variable):
                yield _finding(pod, container, variable, known)


def _finding(pod: Pod, container: Container, variable: str, known: VisibleDevices) -> Finding:
    name = display_variable(variable)
    setting = f"takes {name} from a {reference_kind(container, variable)}"
    action = Action.DENY
    if resource := request_of_other_maker(known, container):
        message = message_about_foreign_variable(container, setting, known, resource)
        advice = f"remove the variable, or ask for {known.maker} cards"
        action = action_beside_request(pod, known, resource, container)
    elif requests_gpu(container):
        message = (
            f"{container} {describe_request(container)} and also {setting}, "
            "which replaces the devices that it is allocated"
        )
        advice = advice_beside_request(container, variable)
    else:
        message = (
            f"{container} {setting} without asking for a GPU: "
            "it may get devices that the scheduler has not counted"
        )
        request = "ask for a GPU in resources.limits"
        hidden = hiding_value(container, variable)
        otherwise = f", or set it to the value {hidden} in the pod itself" if hidden else ""
        advice = remove_and_request_advice(container, "remove the variable", request, otherwise)
    return Finding(
        path=(*container.env_path(variable), "valueFrom"),
        key=name,
        message=message,
        container=container,
        help=advice,
        fix=visibility_fix(pod, container, variable, known),
        action=action,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    setting = concat('"takes " + string(v.shown)', '" from a " + string(v.kind)')
    message = (
        f'(v.foreign != "" ? {foreign_message(setting)}'
        f' : c.requestsGpu ? c.text + " " + c.request + " and also " + {setting}'
        ' + ", which replaces the devices that it is allocated"'
        f' : c.text + " " + {setting}'
        ' + " without asking for a GPU: it may get devices that the scheduler has not counted")'
    )
    hidden = (
        '(v.facts.hidden.size() > 0 ? ", or set it to the value " + v.facts.hidden[0]'
        ' + " in the pod itself" : "")'
    )
    request = cel("ask for a GPU in resources.limits")
    advice = (
        '(v.foreign != "" ? "remove the variable, or ask for " + v.facts.maker[0] + " cards"'
        f" : c.requestsGpu ? {advise_beside_request()}"
        f" : {advise(cel('remove the variable'), request, hidden)})"
    )
    return (Statement("variable", _where(), message, advice, is_beside_request()),)


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    return visibility_mutations(_where())


def _where() -> str:
    return f'v.isVisible && v.state == "reference" && !{is_of_platform()}'


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
