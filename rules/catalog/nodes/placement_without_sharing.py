"""A node without shared GPUs has the label that places pods on shared GPUs.

What it does
------------
Finds the label `ack.node.gpu.placement` on nodes whose label `ack.node.gpu.schedule` names none of
the modes that share cards: `cgpu`, `core_mem`, `share`, `mps`. It looks at Nodes and at what gives
new nodes their labels.

Why it matters
--------------
The label chooses which card of a node the next pod shares. In every other mode it does nothing, so
its author expects something that does not happen: most often the mode is missing.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
"""

from rules.base.text_matching import has_placeholder
from rules.base.traits import NODE, NODE_POOL
from rules.placement.node_labels import MODE_LABEL, PLACEMENT_LABEL, SHARING_MODES, labels_by_node
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield the label of each node, or pool of nodes, whose mode shares no cards."""
    reported: set[str] = set()
    for labels in labels_by_node(subject):
        placement, mode = labels.get(PLACEMENT_LABEL), labels.get(MODE_LABEL)
        known = subject.profile.node_modes.get(MODE_LABEL, ())
        value = mode.value if mode else ""
        # A mode that no one knows is the fault of `unknown-node-mode`.
        if placement is None or value in SHARING_MODES or (mode and value not in known):
            continue
        if has_placeholder(value) or placement.key in reported:
            continue
        reported.add(placement.key)
        found = f"{MODE_LABEL}: {value}" if mode else f"no {MODE_LABEL}"
        yield Finding(
            path=placement.path,
            key=placement.key,
            message=f"the node has the label {PLACEMENT_LABEL} and {found}: only nodes that share "
            "their GPUs heed it",
            help=f"add {MODE_LABEL} with one of {', '.join(SHARING_MODES)}, or remove the label",
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE | NODE_POOL,))
