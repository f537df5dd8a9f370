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

from rules.base.quantity import Quantity, parse
from rules.base.traits import SHARE
from rules.placement.node_labels import GPU_CORE, GPU_MEM
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

FAULT = (
    f"asks for {GPU_CORE}, and no container of the pod for {GPU_MEM}: ACK's scheduler does not "
    "place a pod with computing power alone"
)
ADVICE = f"write {GPU_MEM} (in GiB) beside it under resources.limits"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that requests computing power, if none of the pod requests memory."""
    requesting = [container for container in pod.containers if _asks_for(container, GPU_CORE)]
    if not requesting:
        return
    if any(_asks_for(container, GPU_MEM) for container in pod.containers):
        return
    for container in requesting:
        yield Finding(
            path=container.amount_path(GPU_CORE),
            key=f"alone.{GPU_CORE}",
            message=f"{container} {FAULT}",
            container=container,
            help=ADVICE,
        )


def _asks_for(container: Container, name: str) -> bool:
    for amounts in (container.limits, container.requests):
        if name in amounts:
            amount = parse(amounts[name])
            return not isinstance(amount, Quantity) or amount.nano > 0
    return False


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,), needs_resources=True)
