"""A node that is no ECS instance has a label that turns on cGPU.

What it does
------------
Finds `ack.node.gpu.schedule` with the value `cgpu` or `core_mem` on a Node whose
`spec.providerID` is not that of an ECS instance: a region and an instance, as in
`cn-beijing.i-2ze…`, perhaps after `alicloud://`. Of Nodes without `providerID` it finds those that
run, which state their system in `status.nodeInfo`: machines on premises have none.

Why it matters
--------------
These modes need the kernel module cGPU, which ACK supports on ECS instances only. On other nodes
of a registered cluster the memory of a card is not isolated, or pods do not start. There the mode
is `share`.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
- kubernetes/cloud-provider-alibaba-cloud, the test of `NodeFromProviderID`
"""

import re

from rules.base.json_values import as_object, as_text, display
from rules.base.traits import NODE
from rules.placement.node_labels import CGPU_MODES, MODE_LABEL, node_labels
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_ECS_PATTERN = r"(?:alicloud://)?[a-z0-9-]{1,63}\.[A-Za-z0-9-]{1,63}"


def check(node: KubernetesObject, _context: Context) -> Findings:
    """Yield the label if the node seems to be no ECS instance."""
    provider = as_text(as_object(node.raw.get("spec")).get("providerID"))
    if re.fullmatch(_ECS_PATTERN, provider):
        return
    if provider:
        why = f"by its providerID {display(provider)} it is no ECS instance"
    elif as_object(node.raw.get("status")).get("nodeInfo"):
        why = "it has no providerID, as ECS instances have"
    else:
        return
    for label in node_labels(node):
        if label.name == MODE_LABEL and label.value in CGPU_MODES:
            yield Finding(
                path=label.path,
                key=f"providerID.{MODE_LABEL}",
                message=f"the node has the label {MODE_LABEL}: {label.value}, and {why}: "
                "cGPU runs only on ECS instances",
                help=f"write {MODE_LABEL}: share",
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE,))
