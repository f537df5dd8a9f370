"""A script changes the GPU mode of a node with kubectl.

What it does
------------
Finds in shell scripts, makefiles and the files of CI systems the command `kubectl label nodes` with
the label `ack.node.gpu.schedule`: where it turns on `cgpu` or `core_mem`, where it removes the
label, and where it may change a value (`--overwrite`). Labelling a node with another mode for the
first time, such as a node on premises with `share`, is what ACK documents and is not reported.

Why it matters
--------------
ACK says not to change this label with kubectl: pods that run on the node keep what they were given
by the old mode. `core_mem` cannot be turned on by a label at all: the node must leave the cluster
and join a node pool with this label. Without the label a node does not return to whole cards.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
- https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/use-labels-to-schedule-pods-to-gpu-accelerated-nodes
"""

from rules.placement.node_labels import CGPU_MODES, MODE_LABEL
from rules.rule import Action, Context, Finding, Findings, LabelCommand, define_rule

NODE_POOL_ADVICE = "set the label in the node pool, and let the pool replace the node"


def check(command: LabelCommand, _context: Context) -> Findings:
    """Yield the label if the command turns on isolation, or changes or removes a mode."""
    if command.label != MODE_LABEL:
        return
    if command.value is None:
        what, advice = "removes", f"to return to whole cards, write {MODE_LABEL}=default"
    elif command.value in CGPU_MODES:
        what, advice = f"sets {command.value} in", NODE_POOL_ADVICE
    elif command.overwrites:
        what, advice = "changes", NODE_POOL_ADVICE
    else:
        return
    yield Finding(
        path=(),
        key=MODE_LABEL,
        message=f"`kubectl label` {what} {MODE_LABEL} of a node that runs: "
        "pods on it keep what the old mode gave them",
        help=advice,
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=())
