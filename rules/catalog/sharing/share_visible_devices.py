"""A container that asks for a share of a GPU also sets its visible devices.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the corresponding variables of other makers) with any value
in the `env` of a container that requests a share of a GPU of that maker, such as
`aliyun.com/gpu-mem`. References that the GPU platform itself writes are not reported.

Why it matters
--------------
The sharing system chooses the card and names it to the container runtime in this variable. The
variables of the pod come last and win. The container then gets whole cards other than the one on
which its share is reserved, or none at all. Users sometimes recommend the variable against the
message `no-gpu-has-...-to-run`, but it only bypasses the sharing.

Fix safety
----------
The fix removes the variable by default: the sharing system sets the right value.

References
----------
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/80
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/186
"""

from rules.base.traits import GPU_VARIABLE, SHARE
from rules.gpu.devices import requests_share
from rules.gpu.visibility import (
    describe_setting,
    display_variable,
    is_for_requested_gpu,
    is_platform_reference,
    remove_edits,
    visible_variables,
)
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable by which a container replaces the card chosen for its share."""
    for container in pod.containers:
        if not requests_share(container):
            continue
        for variable, known in visible_variables(container).items():
            if is_for_requested_gpu(known, container) and not is_platform_reference(
                pod, container, variable
            ):
                yield _finding(container, variable)


def _finding(container: Container, variable: str) -> Finding:
    return Finding(
        path=container.env_path(variable),
        key=display_variable(variable),
        message=(
            f"{container} asks for a share of a GPU and also "
            f"{describe_setting(container, variable)}, which overrides the card "
            "that the sharing system picks"
        ),
        container=container,
        help="remove the variable: the sharing system sets it",
        fix=Fix(
            f"remove {display_variable(variable)}", remove_edits(container, variable), safe=True
        ),
    )


in_process = "the rules that it supersedes say it there"


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(GPU_VARIABLE, SHARE),
    supersedes=("visible-devices-env", "gpu-container-hidden", "visible-devices-valuefrom"),
)
