"""A container grants itself GPUs by a visible-devices variable.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the corresponding variables of other makers, which the profiles
list) in a container's `env` with a value that makes the container runtime inject devices: `all`,
an index, a UUID, a CDI name, or a value that the kubelet fills in at start. `void`, `none` and an
empty value are fine. These words must be in lower case: the runtime treats `VOID` as the name of a
device.

A variable of another maker than that of the requested GPU shows that the image and the request do
not fit together. The rule says so, and only warns if no machine has cards of both makers, as with
Gaudi and NVIDIA. A new pod that names its node itself is refused all the same: the kubelet drops a
request for a resource that the node does not have, and the runtime obeys the variable.

Why it matters
--------------
The container gets GPUs that the scheduler has not counted, and shares them with the containers to
which they were allocated. In a container that requests a GPU, the variable replaces the device
plugin's choice, so the container gets the GPUs of other pods as well.

Fix safety
----------
In a container that requests a GPU of the variable's maker from a device plugin, the fix removes the
variable by default: the device plugin sets the right value. In a container that uses only resource
claims or device classes, it sets `NVIDIA_VISIBLE_DEVICES` to `void` by default in pods that are
created exactly as written: these devices are injected by CDI, which `void` does not stop, and
without it the image's own `all` would take effect. In a container that requests only another
maker's GPU, the fix removes the variable only if the policy says `fix: true`. In a container
without a GPU, it overwrites the variable with a value that hides all devices, also only with
`fix: true`: a refusal is clearer than a program that silently sees no GPU.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
- ROCm container toolkit, `internal/oci/oci.go`
- NVIDIA DRA driver, `cmd/gpu-kubelet-plugin/cdi.go`
- Kubernetes, `removeMissingExtendedResources` in `pkg/kubelet/lifecycle/predicate.go`
- https://github.com/NVIDIA/k8s-device-plugin/issues/61
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display
from rules.base.traits import GPU_VARIABLE
from rules.gpu.devices import describe_request, requests_gpu
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    REMOVE_VARIABLE,
    Visibility,
    action_beside_request,
    advice_about_foreign_variable,
    advice_beside_request,
    display_variable,
    hiding_value,
    message_about_foreign_variable,
    remove_and_request_advice,
    request_of_other_maker,
    set_variable_advice,
    visibility,
    visibility_fix,
    visible_variables,
)
from rules.in_process import variables
from rules.in_process.expression import Expression, all_of, choose, is_in, string, text
from rules.in_process.mutation import visibility_mutations
from rules.in_process.statement import CONTAINER, VARIABLE, Mutation, Statement, shown
from rules.profile.platforms.makers import advice_to_request
from rules.profile.profile import Profile, VisibleDevices
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

SPECIAL_WORDS = ("all", "none", "void")
GETS_DEVICES = "it gets devices that the scheduler has not counted"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable by which a container grants itself devices."""
    for container in pod.containers:
        for variable, known in visible_variables(container).items():
            if visibility(container, variable) is Visibility.GRANTED:
                yield _finding(pod, container, variable, known)


def _finding(pod: Pod, container: Container, variable: str, known: VisibleDevices) -> Finding:
    name, value = display_variable(variable), container.env_value(variable) or ""
    setting = _setting(name, display(value))
    action = Action.DENY
    if resource := request_of_other_maker(known, container):
        message = message_about_foreign_variable(container, setting, known.maker, display(resource))
        advice = advice_about_foreign_variable(known.maker)
        action = action_beside_request(pod, known, resource, container)
    elif requests_gpu(container):
        message = _message_beside_request(container, describe_request(container), setting)
        advice = advice_beside_request(container, variable)
    else:
        message = _message_without_request(container, setting, _effect(variable, value))
        request = advice_to_request(known.vendors)
        hidden = hiding_value(container, variable)
        otherwise = _or_hide(hidden) if hidden else ""
        advice = remove_and_request_advice(container, REMOVE_VARIABLE, request, otherwise)
    return Finding(
        path=container.env_value_path(variable),
        key=name,
        message=message,
        container=container,
        help=advice,
        fix=visibility_fix(pod, container, variable, known),
        action=action,
    )


def _setting(name: object, value: object) -> str:
    return f"sets {name}={value}"


def _message_beside_request(container: object, request: object, setting: object) -> str:
    return (
        f"{container} {request} and also {setting}, "
        "which gives it other devices than it is allocated"
    )


def _message_without_request(container: object, setting: object, effect: object) -> str:
    return f"{container} {setting} without asking for a GPU: {effect}"


def _or_hide(value: object) -> str:
    return f", or {set_variable_advice(value)}"


def _effect(variable: str, value: str) -> str:
    word = value.strip().lower()
    if variable == NVIDIA_VISIBLE_DEVICES and word in SPECIAL_WORDS and word != value.strip():
        return _effect_of_capitals(display(word))
    return GETS_DEVICES


def _effect_of_capitals(word: object) -> str:
    # Without this runtime the container starts, and the variable has no effect.
    return (
        f"NVIDIA's runtime cannot start it, because only {word} in lower case has a special meaning"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    setting = text(_setting(string(v.shown), string(v.shownValue)))
    message = choose(
        (v.foreign != "", variables.foreign_message(setting)),
        (c.requestsGpu, text(_message_beside_request(c.text, c.request, setting))),
        otherwise=text(_message_without_request(c.text, setting, _effect_in_cel())),
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


def _effect_in_cel() -> Expression:
    """`_effect` of the variable."""
    v = VARIABLE
    written = v.value.trim()
    word = written.lowerAscii()
    has_capitals = all_of(
        v.name == NVIDIA_VISIBLE_DEVICES, is_in(word, SPECIAL_WORDS), word != written
    )
    return choose((has_capitals, text(_effect_of_capitals(shown(word)))), otherwise=GETS_DEVICES)


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    return visibility_mutations(_where())


def _where() -> Expression:
    return all_of(VARIABLE.isVisible, VARIABLE.state == Visibility.GRANTED.value)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
