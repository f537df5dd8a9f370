"""A node has a label of ACK's old GPU sharing.

What it does
------------
Finds the labels `cgpu: "true"` and `gpushare: "true"` on Nodes and where new nodes get their
labels, if the node has no `ack.node.gpu.schedule` beside them.

Why it matters
--------------
These are the labels of the first GPU sharing on ACK, whose device plugin chose its nodes by
`gpushare: "true"`. Today's components read `ack.node.gpu.schedule` instead, so the node does not
share its GPUs.

References
----------
- AliyunContainerService/gpushare-device-plugin, `device-plugin-ds.yaml`
- https://www.alibabacloud.com/help/doc-detail/191140.html
"""

from rules.base.traits import NODE, NODE_POOL
from rules.placement.node_labels import MODE_LABEL, labels_by_node
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

# The old label -> the mode that took its place.
REPLACEMENTS = {"cgpu": "cgpu", "gpushare": "share"}


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield each old label of a node that has no new one, once for each pool."""
    reported: set[str] = set()
    for labels in labels_by_node(subject):
        for name, mode in REPLACEMENTS.items():
            label = labels.get(name)
            if label is None or label.value != "true" or MODE_LABEL in labels:
                continue
            if label.key not in reported:
                reported.add(label.key)
                yield Finding(
                    path=label.path,
                    key=label.key,
                    message=f"the node label {name} belongs to ACK's old GPU sharing, and "
                    f"today's components read {MODE_LABEL}",
                    help=f"where these components are installed, write {MODE_LABEL}: {mode}",
                )


RULE = define_rule(check, action=Action.AUDIT, since="0.1", needs=(NODE | NODE_POOL,))
