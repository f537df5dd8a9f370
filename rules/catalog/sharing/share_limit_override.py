"""A container that asks for a share of a GPU loosens the limits of its share.

What it does
------------
Finds variables in the `env` of a container that asks for a share of a GPU which switch off
or replace its limits: `CUDA_DISABLE_CONTROL` where it is true, `CUDA_DEVICE_MEMORY_LIMIT`
and `CUDA_DEVICE_SM_LIMIT`, numbered or not, `GPU_CORE_UTILIZATION_POLICY` where it says
`disable`, and the limits of an MPS client.

Why it matters
--------------
A library inside the container keeps the limits of the share and reads them from the
environment. The variables of the pod come last and win, so the container can take memory
and cores from those who share the card. HAMi documents `CUDA_DISABLE_CONTROL=true` as "no
resource isolation and limitation".

HAMi's own webhook may write `GPU_CORE_UTILIZATION_POLICY`, and beside an MPS limit that of
the MPS daemon still holds, so these only warn.

Fix safety
----------
The variable is removed only if the policy says `fix: true`: the program may need it.

References
----------
- https://github.com/Project-HAMi/HAMi/blob/master/docs/config.md
- HAMi-core, `src/multiprocess/multiprocess_memory_limit.c`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.finding import Action, Finding, Fix
from rules.gpu.devices import devices, requests_share
from rules.gpu.visibility import describe_setting, remove_edits
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_RESOURCE, GPU_VARIABLE

SWITCH = "CUDA_DISABLE_CONTROL"
POLICY = "GPU_CORE_UTILIZATION_POLICY"
LIMITS = ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT")
MPS_LIMITS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
TRUE = ("1", "t", "T", "TRUE", "true", "True")  # what Go's ParseBool takes for true
PRESENCE_COUNTS = "volcano.sh/"  # whose device plugin asks only whether the switch is there


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable by which a container loosens the limits of its share."""
    for container in pod.containers:
        for variable in container.env if requests_share(container) else ():
            if effect := _effect(container, variable):
                yield _finding(container, variable, effect)


def _effect(container: Container, variable: str) -> str:
    if variable == SWITCH:
        return _switched(container)
    if variable == POLICY:
        loose = container.value_of(POLICY) in (None, "disable", "DISABLE")
        return "which may switch off the limit on GPU cores" if loose else ""
    if variable in MPS_LIMITS:
        return "which may replace the limit that the sharing system sets"
    limit = variable in LIMITS or variable.rstrip("0123456789").rstrip("_") in LIMITS
    return "which replaces the limit that the sharing system sets" if limit else ""


def _switched(container: Container) -> str:
    if any(name.startswith(PRESENCE_COUNTS) for name in devices(container)):
        return "whose mere presence switches off the limits of the share"
    entries = [entry for _, entry in container.env[SWITCH]]
    on = [e.get("valueFrom") is not None or str(e.get("value")) in TRUE for e in entries]
    if any(on[:-1]) and not on[-1]:  # the device plugin reads the pod, not the environment
        return "of which another entry switches off the limits of the share"
    return "which switches off the limits of the share" if on[-1] else ""


def _finding(container: Container, variable: str, effect: str) -> Finding:
    said = describe_setting(container, variable)
    return Finding(
        path=(*container.path, "env", container.env[variable][-1][0]),
        key=variable,
        message=f"{container} asks for a share of a GPU and {said}, {effect}",
        container=container,
        help="remove the variable: the sharing system sets the limits from resources.limits",
        fix=Fix(f"remove {variable}", remove_edits(container, variable)),
        action=Action.WARN if variable in (POLICY, *MPS_LIMITS) else Action.DENY,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE, GPU_RESOURCE))
