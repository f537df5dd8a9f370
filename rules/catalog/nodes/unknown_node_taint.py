"""A taint of a node is close to that of GPU nodes, or has an effect that does not exist.

What it does
------------
Checks the taints of Nodes and of what makes nodes, such as the NodePools of Karpenter, and with
`gpuward lint --also shell` those of `kubectl taint nodes`. Finds keys that differ from a taint of
GPU nodes in the profile by one letter, in case or punctuation, or by a missing `.com`:
`nvidia.com/gpus`, `nvidia/gpu`. Names without a domain, such as `nvidia-gpu`, may be your own and
are not compared.

On Nodes it also finds effects of such taints that do not exist, such as `NoSchedul`: the API server
refuses them.

Why it matters
--------------
Kubernetes compares taints letter by letter and accepts every key. Pods that tolerate the taint of
GPU nodes do not tolerate the misspelt one. They stay Pending although GPUs are free, and the device
plugin does not start, without which the node offers none.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from rules.base.json_values import display
from rules.base.text_matching import has_placeholder
from rules.base.traits import NODE, NODE_POOL
from rules.placement.node_labels import NodeTaint, node_settings
from rules.placement.tolerations import misspelt_taint
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield each taint at fault, once for each pool."""
    for settings in node_settings(subject):
        for taint in settings.taints:
            if has_placeholder(taint.key) or has_placeholder(taint.effect):
                continue
            found = _fault(taint, subject)
            if found is not None:
                yield found._replace(key=f"taints.{settings.pool}.{taint.key}:{taint.effect}")


def _fault(taint: NodeTaint, subject: KubernetesObject) -> Finding | None:
    if right := misspelt_taint(subject.profile, taint.key):
        return Finding(
            path=taint.path,
            key="",
            message=f"the taint {display(taint.key)} is close to {display(right.key)}, that of GPU "
            "nodes: pods that tolerate the right one do not tolerate it",
            help=f"write {right.key}",
            action=Action.WARN,
        )
    is_known = any(known.key == taint.key for known in subject.profile.taints)
    if subject.kind_trait != NODE or not is_known or taint.effect in EFFECTS:
        return None
    return Finding(
        path=taint.path,
        key="",
        message=f"the taint {display(taint.key)} has the effect {display(taint.effect)}, which "
        "does not exist: the API server refuses it",
        help=f"write one of {', '.join(EFFECTS)}",
        api_refuses=True,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(NODE | NODE_POOL,))
