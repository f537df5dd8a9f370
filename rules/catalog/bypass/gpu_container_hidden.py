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
    Visibility,
    display_variable,
    is_for_requested_gpu,
    remove_edits,
    visibility,
    visible_variables,
)
from rules.in_process.statement import REMOVE, Mutation, Statement, cel
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

VISIBILITIES_WITHOUT_DEVICES = (Visibility.HIDDEN, Visibility.DRIVER_ONLY)


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
        message=(
            f"{container} asks for a GPU and sets "
            f"{name}={display(container.env_value(variable))}, which may hide it"
        ),
        container=container,
        help="remove the variable: the device plugin sets it",
        fix=Fix(f"remove {name}", remove_edits(container, variable), safe=True),
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    message = (
        'c.text + " asks for a GPU and sets " + v.shown + "=" + v.shownValue'
        ' + ", which may hide it"'
    )
    return (
        Statement(
            "variable", _WHERE, message, cel("remove the variable: the device plugin sets it")
        ),
    )


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    return (Mutation("variable", _WHERE, REMOVE),)


_STATES = cel([state.value for state in VISIBILITIES_WITHOUT_DEVICES])
_WHERE = f"v.isVisible && v.state in {_STATES} && v.isForRequest && c.fromPlugin"


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_VARIABLE, GPU))
