"""A container asks for a GPU and hides it from itself.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the corresponding variables of other makers) with the value
`void`, `none` or an empty value in the `env` of a container that requests a GPU of that maker.
In a container that uses only resource claims or device classes, these values are right: CDI injects
their devices, and NVIDIA's DRA driver itself writes `void` into its CDI specifications.

Why it matters
--------------
The variables of the pod come after those of the device plugin, and the last one wins. The
container may therefore start without its GPU: the card is paid for and idle, and no other pod can
have it. Where GPUs are injected by CDI, the variable may have no effect.

Fix safety
----------
The fix removes the variable by default: the device plugin of the requested GPU sets the right
value.

References
----------
- https://github.com/NexusGPU/tensor-fusion/pull/666
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display
from rules.base.traits import GPU, GPU_VARIABLE
from rules.gpu.devices import uses_device_plugin
from rules.gpu.visibility import (
    REMOVE_VARIABLE,
    THE_PLUGIN_SETS_IT,
    Visibility,
    display_variable,
    is_for_requested_gpu,
    remove_edits,
    visibility,
    visible_variables,
)
from rules.in_process.expression import Expression, all_of, is_in, text
from rules.in_process.statement import CONTAINER, REMOVE, VARIABLE, Mutation, Statement
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

VISIBILITIES_WITHOUT_DEVICES = (Visibility.HIDDEN, Visibility.DRIVER_ONLY)
ADVICE = f"{REMOVE_VARIABLE}{THE_PLUGIN_SETS_IT}"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable by which a container hides the GPU that it requests."""
    for container in pod.containers:
        for variable, known in visible_variables(container).items():
            if (
                visibility(container, variable) in VISIBILITIES_WITHOUT_DEVICES
                and is_for_requested_gpu(known, container)
                and uses_device_plugin(container)
            ):
                yield _finding(container, variable)


def _finding(container: Container, variable: str) -> Finding:
    name = display_variable(variable)
    return Finding(
        path=container.env_path(variable),
        key=name,
        message=_message(container, name, display(container.env_value(variable))),
        container=container,
        help=ADVICE,
        fix=Fix(f"remove {name}", remove_edits(container, variable), safe=True),
    )


def _message(container: object, name: object, value: object) -> str:
    return f"{container} asks for a GPU and sets {name}={value}, which may hide it"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    return (Statement("variable", _where(), text(_message(c.text, v.shown, v.shownValue)), ADVICE),)


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    return (Mutation("variable", _where(), REMOVE),)


def _where() -> Expression:
    v = VARIABLE
    states = [state.value for state in VISIBILITIES_WITHOUT_DEVICES]
    return all_of(v.isVisible, is_in(v.state, states), v.isForRequest, CONTAINER.fromPlugin)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_VARIABLE, GPU))
