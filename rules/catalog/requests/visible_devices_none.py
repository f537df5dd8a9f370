"""A container sets NVIDIA_VISIBLE_DEVICES to `none`, with which it may never start.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` in a container's `env` with a value of which the first special word
is `none`, such as `none` or `1,none`. In a container that requests a GPU, `gpu-container-hidden` or
`share-visible-devices` speaks of it.

Why it matters
--------------
`none` asks for the driver's libraries and programs without any GPU. In mode `cdi`, NVIDIA's
container toolkit looks for a device of that name, which the CDI specifications of a node do not
have, and the container never starts: `unresolvable CDI devices`. In mode `legacy`, and where the
toolkit makes the specifications itself (`jit-cdi`), it starts. `void` hides all GPUs in every mode.

The runtime class `nvidia-cdi` of the GPU operator has mode `cdi`, so there the rule warns.
`nvidia-legacy` has mode `legacy`, so there it is silent.

Fix safety
----------
The fix sets the variable to `void` only if the policy says `fix: true`: the program may need the
libraries of the driver.

References
----------
- NVIDIA container toolkit, `internal/modifier/cdi.go` (`cdiDeviceRequestor`),
  `pkg/nvcdi/lib-nvml.go`
- NVIDIA GPU operator, "Container Device Interface (CDI) and Node Resource Interface (NRI) Support"
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_text, display
from rules.base.traits import GPU_VARIABLE
from rules.gpu.devices import requests_gpu
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    VOID_VALUE,
    Visibility,
    hide_fix,
    visibility,
)
from rules.in_process.expression import OBJECT, all_of, get, not_
from rules.in_process.statement import CONTAINER, HIDE, VARIABLE, Mutation
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

MODE_CDI, MODE_LEGACY = "nvidia-cdi", "nvidia-legacy"
IN_RUNTIME_CLASS, IN_MODE = f"in the mode of the runtime class {MODE_CDI}", "in mode cdi"
CONSEQUENCE = 'NVIDIA\'s container toolkit finds no device "none" and does not start it'
ADVICE = f"set the variable to {VOID_VALUE}, which hides all GPUs in every mode"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that sees the driver and no GPU."""
    runtime = as_text(pod.spec.get("runtimeClassName"))
    if runtime == MODE_LEGACY:
        return
    for container in pod.containers:
        if visibility(container) is Visibility.DRIVER_ONLY and not requests_gpu(container):
            yield _finding(container, is_cdi=runtime == MODE_CDI)


def _finding(container: Container, *, is_cdi: bool) -> Finding:
    value = display(container.env_value(NVIDIA_VISIBLE_DEVICES) or "")
    return Finding(
        path=container.env_value_path(NVIDIA_VISIBLE_DEVICES),
        key=NVIDIA_VISIBLE_DEVICES,
        message=(
            f"{container} sets {NVIDIA_VISIBLE_DEVICES}={value}: "
            f"{IN_RUNTIME_CLASS if is_cdi else IN_MODE}, {CONSEQUENCE}"
        ),
        container=container,
        help=ADVICE,
        fix=hide_fix(container),
        action=Action.WARN if is_cdi else Action.AUDIT,
    )


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    where = all_of(
        get(OBJECT.spec, "runtimeClassName", "") != MODE_LEGACY,
        VARIABLE.name == NVIDIA_VISIBLE_DEVICES,
        VARIABLE.state == Visibility.DRIVER_ONLY.value,
        not_(CONTAINER.requestsGpu),
    )
    return (Mutation("variable", where, HIDE, is_safe=False),)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_VARIABLE,))
