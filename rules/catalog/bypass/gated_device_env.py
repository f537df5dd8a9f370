"""A container takes other devices of the node by a variable of NVIDIA's toolkit.

What it does
------------
Finds `NVIDIA_MOFED`, `NVIDIA_NVSWITCH`, `NVIDIA_GDS` and `NVIDIA_GDRCOPY` in a container's `env` if
the value is `enabled` or a reference, and a prefix in `envFrom` that a key can complete to one of
them. A container that requests no GPU, and whose `NVIDIA_VISIBLE_DEVICES` is `void` or empty, is
not reported: there the toolkit reads none of them. `none` is no such value.

In a container that requests a GPU, the rule is silent about `NVIDIA_GDS` and `NVIDIA_GDRCOPY`,
whose devices serve the container's own GPU, and about `NVIDIA_MOFED` beside a resource for RDMA.

Why it matters
--------------
NVIDIA's container toolkit gives the container the devices that each variable stands for:
`/dev/infiniband` for MOFED, `/dev/nvidia-nvswitch*` with the control of the fabric for NVSWITCH,
`/dev/nvidia-fs*` for GDS, and `/dev/gdrdrv` for GDRCOPY. Its one condition is that the container's
list of visible devices is not empty. In legacy mode `none` is an entry of that list, and so are all
devices of an image that is older than the variable. So a container without a GPU gets devices that
the scheduler has not counted, among them InfiniBand, which is a resource to be requested. In mode
`cdi`, with CDI specifications that were written before, the toolkit reads none of these variables.

The rule warns where the image decides whether the list is empty, and in a container that requests a
GPU.

Fix safety
----------
The fix removes the variable only if the policy says `fix: true`: the program may need the devices.

References
----------
- NVIDIA container toolkit, `internal/modifier/gated.go`, `internal/modifier/cdi.go`
- NVIDIA GPU operator, "GPUDirect RDMA and GPUDirect Storage"
"""

from collections.abc import Iterator

from rules.base.text_matching import is_found
from rules.base.traits import GPU_VARIABLE, OTHER_GPU_VARIABLE
from rules.gpu.devices import RDMA_PATTERN, requests_gpu
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    Visibility,
    certainly_gets_no_gpu,
    describe_setting,
    looks_like_legacy_image,
    prefix_findings,
    remove_edits,
    visibility,
)
from rules.in_process.expression import (
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    get,
    is_in,
    not_,
    text,
)
from rules.in_process.statement import CONTAINER, VARIABLE, Statement
from rules.in_process.variables import has_variable, prefix_statement
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

# Each variable with its devices, and the shortest prefix that no other variable of NVIDIA's toolkit
# has: `visible-devices-envfrom` reports shorter ones.
DEVICES_AND_PREFIXES = {
    "NVIDIA_MOFED": ("the InfiniBand devices of the node", "NVIDIA_MO"),
    "NVIDIA_NVSWITCH": ("the NVSwitch devices that all GPUs of the node share", "NVIDIA_N"),
    "NVIDIA_GDS": ("the devices of GPUDirect Storage", "NVIDIA_G"),
    "NVIDIA_GDRCOPY": ("the device of GDRCopy", "NVIDIA_G"),
}
VARIABLES_OF_OWN_GPU = frozenset({"NVIDIA_GDS", "NVIDIA_GDRCOPY"})
MOFED = "NVIDIA_MOFED"
ENABLED_VALUE = "enabled"
VISIBILITIES_WITH_DEVICES = (Visibility.DRIVER_ONLY, Visibility.GRANTED)
ADVICE = f"remove the variable, or set {NVIDIA_VISIBLE_DEVICES}=void if it needs no GPU"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable by which a container takes devices."""
    for container in pod.containers:
        if certainly_gets_no_gpu(container):
            continue
        state = visibility(container)
        has_gpu = requests_gpu(container)
        for variable, (devices, own_prefix) in DEVICES_AND_PREFIXES.items():
            if has_gpu and (
                variable in VARIABLES_OF_OWN_GPU or (variable == MOFED and _has_rdma(container))
            ):
                continue
            effect = _effect(devices)
            is_certain = not has_gpu and _lists_devices(container, state)
            if variable not in container.env:
                found = prefix_findings(container, variable, effect=effect, within=own_prefix)
                yield from (
                    finding._replace(action=_action(is_certain=is_certain)) for finding in found
                )
            elif _may_be_enabled(container.env_value(variable)):
                effect += _qualification(has_gpu=has_gpu, is_certain=is_certain)
                yield _finding(container, variable, effect, is_certain=is_certain)


def _effect(devices: str) -> str:
    return f": NVIDIA's runtime gives it {devices}"


def _may_be_enabled(value: str | None) -> bool:
    return value is None or value == ENABLED_VALUE or "$(" in value


def _lists_devices(container: Container, state: Visibility) -> bool:
    """Return whether the list of visible devices has an entry, whatever the image is."""
    if state is Visibility.UNSET:
        return looks_like_legacy_image(container)
    return state in VISIBILITIES_WITH_DEVICES


def _qualification(*, has_gpu: bool, is_certain: bool) -> str:
    if has_gpu:
        return ", which it did not request"
    return ", which nobody has counted" if is_certain else " if its list of devices is not empty"


def _has_rdma(container: Container) -> bool:
    return any(is_found(RDMA_PATTERN, name.lower()) for name in container.limits)


def _finding(container: Container, variable: str, effect: str, *, is_certain: bool) -> Finding:
    return Finding(
        path=container.env_path(variable),
        key=variable,
        message=_message(container, describe_setting(container, variable), effect),
        container=container,
        help=ADVICE,
        fix=Fix(f"remove {variable}", remove_edits(container, variable)),
        action=_action(is_certain=is_certain),
    )


def _action(*, is_certain: bool) -> Action:
    return Action.DENY if is_certain else Action.WARN


def _message(container: object, setting: object, effect: object) -> str:
    return f"{container} {setting}{effect}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    return tuple(_statements())


def _statements() -> Iterator[Statement]:
    c, v = CONTAINER, VARIABLE
    is_certain = all_of(not_(c.requestsGpu), _lists_devices_in_cel(c))
    action = choose((is_certain, "deny"), otherwise="warn")
    qualification = choose(
        (c.requestsGpu, _qualification(has_gpu=True, is_certain=False)),
        (is_certain, _qualification(has_gpu=False, is_certain=True)),
        otherwise=_qualification(has_gpu=False, is_certain=False),
    )
    may_be_enabled = any_of(v.isReference, v.value == ENABLED_VALUE, v.value.contains("$("))
    for variable, (devices, own_prefix) in DEVICES_AND_PREFIXES.items():
        effect = _effect(devices)
        gets_devices = all_of(not_(c.hasNoDevice), not_(_may_have_in_cel(c, variable)))
        yield Statement(
            "variable",
            where=all_of(v.name == variable, may_be_enabled, gets_devices),
            message=text(_message(c.text, v.setting, f"{effect}{qualification}")),
            help=ADVICE,
            action=action,
        )
        may_be_prefixed = all_of(not_(has_variable(variable)), gets_devices)
        found = prefix_statement(variable, effect, may_be_prefixed, within=own_prefix)
        yield found._replace(action=action)


def _lists_devices_in_cel(container: Expression) -> Expression:
    """`_lists_devices` of `container`."""
    states = [state.value for state in VISIBILITIES_WITH_DEVICES]
    lists_devices = container.variables.exists(
        lambda v: all_of(v.name == NVIDIA_VISIBLE_DEVICES, is_in(v.state, states))
    )
    is_set = has_variable(NVIDIA_VISIBLE_DEVICES, container)
    return choose((is_set, lists_devices), otherwise=container.looksLegacy)


def _may_have_in_cel(container: Expression, variable: str) -> Value:
    """Return whether `container` may have the devices of `variable`, for what it requests."""
    if variable in VARIABLES_OF_OWN_GPU:
        return container.requestsGpu
    if variable != MOFED:
        return False
    has_rdma = get(container.raw, "resources.limits", {}).exists(
        lambda n: n.lowerAscii().matches(RDMA_PATTERN)
    )
    return all_of(container.requestsGpu, has_rdma)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
