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
The pod does not contain the value, so a reader cannot see which GPUs the container will get, and
a user who may write the ConfigMap can change the value later. The value can be `all`, like a value
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

from rules.base.json_values import display
from rules.base.traits import GPU_VARIABLE
from rules.gpu.devices import describe_request, requests_gpu
from rules.gpu.visibility import (
    REMOVE_VARIABLE,
    Visibility,
    action_beside_request,
    advice_about_foreign_variable,
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
from rules.in_process import variables
from rules.in_process.expression import Expression, all_of, choose, not_, string, text
from rules.in_process.mutation import visibility_mutations
from rules.in_process.statement import CONTAINER, VARIABLE, Mutation, Statement
from rules.profile.platforms.makers import advice_to_request
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
    setting = _setting(name, reference_kind(container, variable))
    action = Action.DENY
    if resource := request_of_other_maker(known, container):
        message = message_about_foreign_variable(container, setting, known.maker, display(resource))
        advice = advice_about_foreign_variable(known.maker)
        action = action_beside_request(pod, known, resource, container)
    elif requests_gpu(container):
        message = _message_beside_request(container, describe_request(container), setting)
        advice = advice_beside_request(container, variable)
    else:
        message = _message_without_request(container, setting)
        hidden = hiding_value(container, variable)
        otherwise = _or_hide(hidden) if hidden else ""
        request = advice_to_request(known.vendors)
        advice = remove_and_request_advice(container, REMOVE_VARIABLE, request, otherwise)
    return Finding(
        path=(*container.env_path(variable), "valueFrom"),
        key=name,
        message=message,
        container=container,
        help=advice,
        fix=visibility_fix(pod, container, variable, known),
        action=action,
    )


def _setting(name: object, kind: object) -> str:
    return f"takes {name} from a {kind}"


def _message_beside_request(container: object, request: object, setting: object) -> str:
    return (
        f"{container} {request} and also {setting}, which replaces the devices that it is allocated"
    )


def _message_without_request(container: object, setting: object) -> str:
    return (
        f"{container} {setting} without asking for a GPU: "
        "it may get devices that the scheduler has not counted"
    )


def _or_hide(value: object) -> str:
    return f", or set it to the value {value} in the pod itself"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    setting = text(_setting(string(v.shown), string(v.kind)))
    message = choose(
        (v.foreign != "", variables.foreign_message(setting)),
        (c.requestsGpu, text(_message_beside_request(c.text, c.request, setting))),
        otherwise=text(_message_without_request(c.text, setting)),
    )
    hidden = v.facts.hidden
    advice = choose(
        (v.foreign != "", text(advice_about_foreign_variable(v.facts.maker[0]))),
        (c.requestsGpu, variables.advice_beside_request()),
        otherwise=variables.remove_and_request_advice(
            REMOVE_VARIABLE,
            v.facts.request[0],
            choose((hidden.size() > 0, text(_or_hide(hidden[0]))), otherwise=""),
        ),
    )
    return (Statement("variable", _where(), message, advice, variables.action_beside_request()),)


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    return visibility_mutations(_where())


def _where() -> Expression:
    v = VARIABLE
    is_of_platform = variables.is_platform_reference()
    return all_of(v.isVisible, v.state == Visibility.REFERENCE.value, not_(is_of_platform))


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
