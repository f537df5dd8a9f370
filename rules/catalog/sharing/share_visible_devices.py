"""A container that asks for a share of a GPU also sets its visible devices.

What it does
------------
Finds `NVIDIA_VISIBLE_DEVICES` (and the like of other vendors) with any value in the `env`
of a container that asks for a share of a GPU of that vendor, such as `aliyun.com/gpu-mem`.

Why it matters
--------------
The sharing system picks the card and tells the container runtime by this variable. The
variables of the pod come last and win, so the container gets other cards than the one on
which its share is reserved, whole, or none at all. The variable is sometimes recommended
as a cure for the message `no-gpu-has-...-to-run`; what it cures is the sharing.

Fix safety
----------
The variable is removed, unasked: the sharing system sets the right one.

References
----------
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/80
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/186
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.container import Container
from rules.context import Context
from rules.devices import holds_share
from rules.pod import Pod
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import SHARE, VARIABLE
from rules.visibility import GRANTING, concerns, is_injected, removal, setting


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable by which a container overrides the card of its share."""
    for container in pod.containers:
        for variable in GRANTING:
            if (
                variable in container.env
                and holds_share(container)
                and concerns(variable, container)
                and not is_injected(container, variable)
            ):
                yield _finding(container, variable)


def _finding(container: Container, variable: str) -> Finding:
    return Finding(
        path=(*container.path, "env", container.env[variable][-1][0]),
        key=variable,
        message=(
            f"{container} asks for a share of a GPU and also {setting(container, variable)}, "
            "which overrides the card that the sharing system picks"
        ),
        container=container,
        help="remove the variable: the sharing system sets it",
        fix=Fix(f"remove {variable}", removal(container, variable), safe=True),
    )


RULE = Rule(
    name="share-visible-devices",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="a container that asks for a share of a GPU also sets its visible devices",
    check=check,
    needs=(VARIABLE, SHARE),
    instead_of=("visible-devices-env", "gpu-container-hidden", "visible-devices-valuefrom"),
)
