"""Computing power of a shared GPU is asked for without memory.

What it does
------------
Finds `aliyun.com/gpu-core.percentage` in a pod in which no container requests
`aliyun.com/gpu-mem`.

Why it matters
--------------
ACK shares a card by its memory, and computing power can only be requested with it. The scheduler
of ACK does not place a pod that requests computing power alone.

References
----------
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU" (ACK)
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.quantity import Quantity, parse
from rules.finding import Action, Finding
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import SHARE

CORE = "aliyun.com/gpu-core.percentage"
GPU_MEM = "aliyun.com/gpu-mem"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each container that requests computing power, if none of the pod requests memory."""
    requesting = [container for container in pod.containers if _asks(container, CORE)]
    if not requesting:
        return
    if any(_asks(container, GPU_MEM) for container in pod.containers):
        return
    for container in requesting:
        message = f"{container} asks for {CORE} and the pod for no {GPU_MEM}, which goes with it"
        advice = f"write {GPU_MEM} (in GiB) beside it under resources.limits"
        field = "limits" if CORE in container.limits else "requests"
        path = (*container.resources_path, field, CORE)
        yield Finding(
            path=path, key=f"alone.{CORE}", message=message, container=container, help=advice
        )


def _asks(container: Container, name: str) -> bool:
    for amounts in (container.limits, container.requests):
        if name in amounts:
            amount = parse(amounts[name])
            return not isinstance(amount, Quantity) or amount.nano > 0
    return False


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,), needs_resources=True)
