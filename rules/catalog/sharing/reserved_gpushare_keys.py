"""A new pod carries what only a GPU scheduler may write.

What it does
------------
Finds annotations and environment variables in which the schedulers of ACK, HAMi and koordinator
record which card a pod was given, and `CGPU_DISABLE` with a value that switches cGPU off. Updates
are not checked: the schedulers write these keys by an update. Nor are the annotations of a pod that
was read from a cluster.

Why it matters
--------------
Schedulers and device plugins trust these keys. A pod that is created with them may be counted on
a card that it was never given, or get a card or memory that belongs to another pod.

Fix safety
----------
The fix removes the key only if the policy says `fix: true`: a refusal shows a user who copied a
running pod what is wrong with the copy.

References
----------
- https://github.com/AliyunContainerService/gpushare-scheduler-extender
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
- Project-HAMi/HAMi, `pkg/device/nvidia/device.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.base.json_patch import remove
from rules.finding import Action, Finding, Fix
from rules.gpu.visibility_edits import remove_edits
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_KEY, GPU_VARIABLE

SWITCH = "CGPU_DISABLE"
PARTS = ("IDX", "POD", "CONTAINER", "DEV", "ASSIGNED", "ASSUME_TIME")
VARIABLES = frozenset(
    {*(f"ALIYUN_COM_GPU_MEM_{part}" for part in PARTS), "ALIYUN_COM_GPU_VISIBLE_DEVICES", SWITCH}
)
SWITCHED_ON = frozenset({"", "0", "false", "False", "FALSE"})
RESERVED_ANNOTATIONS = (
    "ALIYUN_COM_GPU_MEM_",
    "scheduler.framework.gpushare.",
    "gpushare.alibabacloud.com/",
    "scheduling.koordinator.sh/device-allocated",
)
HAMI = "hami.io/"
ALLOCATIONS = ("devices-allocated", "devices-to-allocate")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield each reserved annotation and variable of a new pod."""
    if context.operation == "UPDATE":
        return
    for key in pod.annotations if not pod.exists else ():
        if key.startswith(RESERVED_ANNOTATIONS) or _is_hami_allocation(key):
            path = (*pod.metadata_path, "annotations", key)
            message = (
                f"the annotation {display(key)} is the scheduler's: it tells who holds which GPU"
            )
            fix = Fix("remove the annotation", (remove(path),))
            advice = "remove it: the scheduler writes its own"
            yield Finding(
                path=path, key=f"annotations.{key}", message=message, help=advice, fix=fix
            )
    for container in pod.containers:
        if VARIABLES.isdisjoint(container.env):
            continue
        for variable in container.env:
            harmless = variable == SWITCH and container.value_of(SWITCH) in SWITCHED_ON
            if variable in VARIABLES and not harmless:
                yield _finding(container, variable)


def _is_hami_allocation(key: str) -> bool:
    return key.startswith(HAMI) and any(word in key for word in ALLOCATIONS)


def _finding(container: Container, variable: str) -> Finding:
    what = "the device plugin's: it tells which GPU the container holds"
    if variable == SWITCH:
        what = "the administrator's: it switches off what keeps the GPU's sharers apart"
    message = f"{container} sets {variable}, which is {what}"
    path = (*container.path, "env", container.env[variable][-1][0])
    fix = Fix(f"remove {variable}", remove_edits(container, variable))
    return Finding(
        path=path,
        key=variable,
        message=message,
        container=container,
        help="remove the variable",
        fix=fix,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_KEY | GPU_VARIABLE,))
