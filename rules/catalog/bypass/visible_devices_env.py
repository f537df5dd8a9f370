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
    Visibility,
    action_beside_request,
    advice_beside_request,
    display_variable,
    hiding_value,
    message_about_foreign_variable,
    remove_and_request_advice,
    request_of_other_maker,
    visibility,
    visibility_fix,
    visible_variables,
)
from rules.in_process.mutation import visibility_mutations
from rules.in_process.statement import Mutation, Statement, cel, concat, shown
from rules.in_process.variables import advice_beside_request as advise_beside_request
from rules.in_process.variables import foreign_message, is_beside_request
from rules.in_process.variables import remove_and_request_advice as advise
from rules.profile.profile import Profile, VisibleDevices
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable by which a container grants itself devices."""
    for container in pod.containers:
        for variable, known in visible_variables(container).items():
            if visibility(container, variable) is Visibility.GRANTED:
                yield _finding(pod, container, variable, known)


def _finding(pod: Pod, container: Container, variable: str, known: VisibleDevices) -> Finding:
    name, value = display_variable(variable), container.env_value(variable) or ""
    setting = f"{name}={display(value)}"
    action = Action.DENY
    if resource := request_of_other_maker(known, container):
        message = message_about_foreign_variable(container, f"sets {setting}", known, resource)
        advice = f"remove the variable, or ask for {known.maker} cards"
        action = action_beside_request(pod, known, resource, container)
    elif requests_gpu(container):
        message = (
            f"{container} {describe_request(container)} and also sets {setting}, "
            "which gives it other devices than it is allocated"
        )
        advice = advice_beside_request(container, variable)
    else:
        message = f"{container} sets {setting} without asking for a GPU: {_effect(variable, value)}"
        request = f"ask for a GPU in resources.limits{_example_request(variable)}"
        hidden = hiding_value(container, variable)
        otherwise = f", or set the variable to {hidden}" if hidden else ""
        advice = remove_and_request_advice(container, "remove the variable", request, otherwise)
    return Finding(
        path=container.env_value_path(variable),
        key=name,
        message=message,
        container=container,
        help=advice,
        fix=visibility_fix(pod, container, variable, known),
        action=action,
    )


def _example_request(variable: str) -> str:
    return " (such as nvidia.com/gpu: 1)" if variable == NVIDIA_VISIBLE_DEVICES else ""


def _effect(variable: str, value: str) -> str:
    word = value.strip().lower()
    if (
        variable == NVIDIA_VISIBLE_DEVICES
        and word in ("all", "none", "void")
        and word != value.strip()
    ):
        # Without this runtime the container starts, and the variable has no effect.
        why = f"because only {display(word)} in lower case has a special meaning"
        return f"NVIDIA's runtime cannot start it, {why}"
    return "it gets devices that the scheduler has not counted"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    setting = 'string(v.shown) + "=" + string(v.shownValue)'
    word = "v.value.trim().lowerAscii()"
    odd = (
        f'v.name == {cel(NVIDIA_VISIBLE_DEVICES)} && {word} in ["all", "none", "void"]'
        f" && {word} != v.value.trim()"
    )
    stops = cel("NVIDIA's runtime cannot start it, because only ")
    effect = (
        f"({odd} ? {stops} + {shown(word)}"
        ' + " in lower case has a special meaning"'
        ' : "it gets devices that the scheduler has not counted")'
    )
    message = (
        f'(v.foreign != "" ? {foreign_message(concat(cel("sets "), setting))}'
        f' : c.requestsGpu ? c.text + " " + c.request + " and also sets " + {setting}'
        ' + ", which gives it other devices than it is allocated"'
        f' : c.text + " sets " + {setting} + " without asking for a GPU: " + {effect})'
    )
    example = f'(v.name == {cel(NVIDIA_VISIBLE_DEVICES)} ? " (such as nvidia.com/gpu: 1)" : "")'
    request = concat(cel("ask for a GPU in resources.limits"), example)
    hidden = '(v.facts.hidden.size() > 0 ? ", or set the variable to " + v.facts.hidden[0] : "")'
    advice = (
        '(v.foreign != "" ? "remove the variable, or ask for " + v.facts.maker[0] + " cards"'
        f" : c.requestsGpu ? {advise_beside_request()}"
        f" : {advise(cel('remove the variable'), request, hidden)})"
    )
    return (Statement("variable", _WHERE, message, advice, is_beside_request()),)


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    return visibility_mutations(_WHERE)


_WHERE = 'v.isVisible && v.state == "granted"'


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
