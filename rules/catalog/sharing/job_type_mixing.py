"""Pods that share cards by memory alone are sent to nodes of pods that ask for computing power too.

What it does
------------
Finds pods that ask for `aliyun.com/gpu-mem` without `aliyun.com/gpu-core.percentage` and select the
same nodes as pods with both in another object of the same run. The nodes are the same if the two
have the same `nodeSelector`, and a label in it names a pool: `ack.node.gpu.schedule: core_mem`,
`alibabacloud.com/nodepool-id`. Nothing is said of pods with required node affinity, which may
require more, and of pods that run already.

Why it matters
--------------
On ACK, a node cannot run both kinds of pods at the same time. Where the pool has one node, the pods
of the kind that came second stay Pending, although memory is free; where it has several, each node
serves the kind that it got first.

References
----------
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU" (ACK), limitations
"""

from rules.base.json_values import display
from rules.base.traits import KNOWN_SHARE_POOLS, NODE_CONSTRAINT, SHARE
from rules.inventory.inventory import SharePool
from rules.objects.container import POD_SPEC
from rules.placement.node_labels import GPU_CORE, GPU_MEM, MODE_LABEL
from rules.placement.selected_cards import labels_of_share_pool, requests_share
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield one finding if another object asks for computing power on the nodes of the pod."""
    if pod.layout is not POD_SPEC or pod.exists:
        return
    if not requests_share(pod.spec, GPU_MEM) or requests_share(pod.spec, GPU_CORE):
        return
    pool = labels_of_share_pool(pod.spec)
    other = context.inventory.find(SharePool, pool) if pool else None
    if other is not None:
        yield Finding(
            path=(*pod.path, "nodeSelector"),
            key="nodeSelector",
            message=f"the pod asks for {GPU_MEM} alone on the nodes with {display(pool)}, and "
            f"{display(other.object)} for {GPU_CORE} as well: a node cannot run both kinds at the "
            "same time",
            help=f"select a pool with {MODE_LABEL}: cgpu for pods that ask for memory alone",
        )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(SHARE, NODE_CONSTRAINT, KNOWN_SHARE_POOLS),
    needs_resources=True,
)
