"""A node has the label of a GPU mode, and does not offer the resources of this mode, or others too.

What it does
------------
Compares the label `ack.node.gpu.schedule` of a Node with what its `status` says. Finds a resource
of the mode of which the node has none: `core_mem` without `aliyun.com/gpu-core.percentage`, and
resources that other modes have and this one has not: `share` with `nvidia.com/gpu`. The
`nodeModes` of a profile say which resources belong to a mode. Only Nodes with a `status` are
checked, as `kubectl get` prints them.

Why it matters
--------------
Pods that ask for the resource stay Pending, although the label says that the node serves them. The
device plugin of the mode does not run there, or the driver does not work. In the first minutes of
a node this is usual. Where a node offers the resources of two modes, two device plugins hand out
the same cards: whoever gets a whole one shares it with others.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
"""

from rules.base.traits import NODE
from rules.placement.node_labels import MODE_LABEL, node_labels, offered_amount, resources_of_node
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule


def check(node: KubernetesObject, _context: Context) -> Findings:
    """Yield the label if the node lacks a resource of its mode."""
    offered = resources_of_node(node)
    if not offered:
        return
    for label in node_labels(node):
        if label.name != MODE_LABEL:
            continue
        modes = node.profile.node_modes.get(MODE_LABEL, {})
        names = modes.get(label.value, ())
        missing = [name for name in names if offered_amount(offered, name) == 0]
        if missing:
            yield Finding(
                path=label.path,
                key=f"status.{MODE_LABEL}",
                message=f"the node has the label {MODE_LABEL}: {label.value}, "
                f"and its status has no {' and no '.join(missing)}",
                help="see whether the device plugin of this mode runs on the node, and its driver",
            )
        others = dict.fromkeys(name for each in modes.values() for name in each if names)
        foreign = [name for name in others if name not in names and offered_amount(offered, name)]
        if foreign:
            yield Finding(
                path=label.path,
                key=f"status.{MODE_LABEL}.others",
                message=f"the node has the label {MODE_LABEL}: {label.value}, "
                f"and its status has {' and '.join(foreign)}, which this mode does not offer",
                help="let one device plugin hand out the cards of a node",
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE,))
