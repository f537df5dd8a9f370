"""What a node offers of its GPUs does not fit the number of its GPUs.

What it does
------------
Checks what the `status` of a Node on ACK says: `aliyun.com/gpu-core.percentage` must be 100 for
each of its `aliyun.com/gpu-count` cards, and `aliyun.com/gpu-mem` must be a multiple of that
number. Where labels of the node say how many cards it has (`aliyun.accelerator/nvidia_count`), how
much memory each has (`aliyun.accelerator/nvidia_mem`) or which model they are, the totals must fit
these too: four cards of 15 GiB are 400 percent, 4 cards and 60 GiB. Device plugins count somewhat
less memory than a card is sold with, so up to a fifth may be missing.

Why it matters
--------------
The scheduler divides the memory of a node evenly among its cards. If the totals do not fit, cards
differ or one has dropped out, and the scheduler places pods on memory that no card has.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
- AliyunContainerService/gpushare-scheduler-extender, `pkg/cache/nodeinfo.go`
"""

import re

from rules.base.traits import NODE
from rules.placement.node_labels import (
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    node_labels,
    offered_amount,
    resources_of_node,
)
from rules.placement.selected_cards import MEBIBYTES_BY_UNIT, CardMemory, card_memory_of_node
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_COUNT_LABEL = "aliyun.accelerator/nvidia_count"
# Of the memory that a card is sold with, a device plugin counts less: 15 GiB of a T4 of 16 GB.
_LEAST_COUNTED_PERCENT = 80
_MEBIBYTES_OF_GIBIBYTE = MEBIBYTES_BY_UNIT["GiB"]


def check(node: KubernetesObject, _context: Context) -> Findings:
    """Yield each total that does not fit the number of cards, or what labels say of the cards."""
    offered = resources_of_node(node)
    count = offered_amount(offered, GPU_COUNT)
    if not count:
        return
    labels = {label.name: label.value for label in node_labels(node)}
    stated = labels.get(_COUNT_LABEL, "")
    if re.fullmatch("[1-9][0-9]{0,3}", stated) and int(stated) != count:
        yield _finding(
            node, GPU_COUNT, f"{GPU_COUNT}: {count}, and its label {_COUNT_LABEL} says {stated}"
        )
    memory, percentage = offered_amount(offered, GPU_MEM), offered_amount(offered, GPU_CORE)
    if percentage and percentage != 100 * count:
        yield _finding(
            node, GPU_CORE, f"{GPU_CORE}: {percentage}, and {count} cards have {100 * count}"
        )
    if memory and memory % count:
        yield _finding(
            node, GPU_MEM, f"{GPU_MEM}: {memory}, which {count} cards of equal memory cannot have"
        )
    elif memory and (cards := card_memory_of_node(labels)) and _does_not_fit(memory, count, cards):
        of_cards = f"{count} times {cards.cards}"
        yield _finding(node, GPU_MEM, f"{GPU_MEM}: {memory}, which is not the memory of {of_cards}")


def _does_not_fit(gibibytes: int, count: int, cards: CardMemory) -> bool:
    """Return whether so many cards have much less memory, or more; some plugins count MiB."""
    least = cards.smallest_mebibytes * _LEAST_COUNTED_PERCENT // 100
    return not any(
        count * least <= amount <= count * (cards.largest_mebibytes + _MEBIBYTES_OF_GIBIBYTE)
        for amount in (gibibytes, gibibytes * _MEBIBYTES_OF_GIBIBYTE)
    )


def _finding(node: KubernetesObject, name: str, what: str) -> Finding:
    return Finding(
        path=(*node.path, "status"),
        key=f"status.{name}",
        message=f"the node offers {what}",
        help="compare `nvidia-smi` on the node; after a card has failed, drain and repair the node",
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE,))
