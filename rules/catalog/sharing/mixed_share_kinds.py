"""The containers of a pod ask for different kinds of GPU share.

What it does
------------
Compares which of `aliyun.com/gpu-mem` and `aliyun.com/gpu-core.percentage` each container of a
pod has in its limits. Init containers and containers that request no share are not compared.

Why it matters
--------------
The scheduler of ACK places a pod only if all its containers that share a GPU request the same
kinds of resources. A node cannot run pods that request memory alone at the same time as pods that
request memory and computing power.

References
----------
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU" (ACK)
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
"""

from rules.base.quantity import Quantity, parse
from rules.base.traits import SHARE
from rules.placement.node_labels import GPU_CORE, GPU_MEM
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

SHARE_RESOURCES = (GPU_MEM, GPU_CORE)
ADVICE = "ask for the same kinds of share in every container that uses the GPU"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that lacks a kind of share which another container requests."""
    sharing = [
        (c, kinds)
        for c in pod.containers
        if c.role == "app"
        if (kinds := _limited_share_resources(c))
    ]
    if not sharing:
        return
    wanted = [name for name in SHARE_RESOURCES if any(name in kinds for _, kinds in sharing)]
    for container, kinds in sharing:
        missing = " and ".join(name for name in wanted if name not in kinds)
        if missing:
            yield Finding(
                path=(*container.resources_path, "limits"),
                key="limits",
                message=(
                    f"{container} asks for {' and '.join(kinds)}, "
                    f"and another container of the pod also for {missing}: "
                    "all must ask for the same"
                ),
                container=container,
                help=ADVICE,
            )


def _limited_share_resources(container: Container) -> list[str]:
    return [
        name
        for name in SHARE_RESOURCES
        if name in container.limits and _may_be_positive(container, name)
    ]


def _may_be_positive(container: Container, name: str) -> bool:
    amount = parse(container.limits[name])
    return not isinstance(amount, Quantity) or amount.nano > 0


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,), needs_resources=True)
