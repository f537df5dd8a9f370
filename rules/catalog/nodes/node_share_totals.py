"""What a node offers of its GPUs does not fit the number of its GPUs.

What it does
------------
Checks what the `status` of a Node on ACK says: `aliyun.com/gpu-core.percentage` must be 100 for
each of its `aliyun.com/gpu-count` cards, and `aliyun.com/gpu-mem` must be a multiple of that
number.

Why it matters
--------------
The scheduler divides the memory of a node evenly among its cards. If the totals do not fit, cards
differ or one has dropped out, and the scheduler places pods on memory that no card has.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
- AliyunContainerService/gpushare-scheduler-extender, `pkg/cache/nodeinfo.go`
"""

from rules.base.traits import NODE
from rules.placement.node_labels import (
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    offered_amount,
    resources_of_node,
)
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule


def check(node: KubernetesObject, _context: Context) -> Findings:
    """Yield each total that does not fit the number of cards."""
    offered = resources_of_node(node)
    count = offered_amount(offered, GPU_COUNT)
    if not count:
        return
    memory, percentage = offered_amount(offered, GPU_MEM), offered_amount(offered, GPU_CORE)
    if percentage and percentage != 100 * count:
        yield _finding(
            node, GPU_CORE, f"{GPU_CORE}: {percentage}, and {count} cards have {100 * count}"
        )
    if memory and memory % count:
        yield _finding(
            node, GPU_MEM, f"{GPU_MEM}: {memory}, which {count} cards of equal memory cannot have"
        )


def _finding(node: KubernetesObject, name: str, what: str) -> Finding:
    return Finding(
        path=(*node.path, "status"),
        key=f"status.{name}",
        message=f"the node offers {what}",
        help="compare `nvidia-smi` on the node; after a card has failed, drain and repair the node",
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE,))
