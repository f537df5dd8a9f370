"""A node with GPUs has no taint that keeps other pods off.

What it does
------------
Checks Nodes, and pools that say which labels and taints their nodes get, if the profile names the
taint of such nodes (the profile `nvidia` names `nvidia.com/gpu:NoSchedule`). A Node counts if it
offers a resource to which the taint belongs, a pool if it gives its nodes a label that is named
like the resource, one that `affinities` of the profile name for it (`nvidia.com/gpu.present`, on
AKS `kubernetes.azure.com/accelerator`), or on EKS `k8s.amazonaws.com/accelerator`. Other labels of
GPU nodes, such as `karpenter.k8s.aws/instance-category`, do not count: the profile does not say
which resource such nodes offer.

Finds those without a taint of the effect `NoSchedule` or `NoExecute`. Any key will do, except those
that do not stay: of Kubernetes (`node.kubernetes.io/…`, `node.cloudprovider.kubernetes.io/…`), of
autoscalers (`ToBeDeletedByClusterAutoscaler`, `karpenter.sh/disrupted` and
`karpenter.sh/unregistered`), of Cluster API (`node.cluster.x-k8s.io/uninitialized`) and of Cilium
(`node.cilium.io/agent-not-ready`).

Pools of GKE are not checked: GKE adds the taint itself where a cluster has other pools too. Nor are
ACK's and the first node of kubeadm.

The rule is off by default: a cluster whose nodes all have GPUs needs no taint.

Why it matters
--------------
Without a taint every pod may run on the node. Pods that need no GPU then take its cpu and its
memory, and the cards stay idle because nothing else fits beside them. An autoscaler may also keep
an expensive node for such pods alone.

`toleration-default` adds the toleration to pods that request a GPU.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#example-use-cases
- https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#extendedresourcetoleration
- kubernetes/autoscaler, `cluster-autoscaler/cloudprovider/aws/README.md` (the label on EKS)
"""

from rules.base.text_matching import matches_any
from rules.base.traits import NODE, NODE_POOL
from rules.placement.node_labels import (
    NodeSettings,
    node_settings,
    offered_amount,
    resources_of_node,
)
from rules.placement.tolerations import display_taint
from rules.profile.profile import Profile, Taint
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

# A label that says nothing of the resource, and the resource that the cluster autoscaler expects of
# nodes with it, whatever its value.
_RESOURCE_BY_LABEL = {"k8s.amazonaws.com/accelerator": "nvidia.com/gpu"}


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield each node, or pool of nodes, that lacks its taint; once for each."""
    reported: set[str] = set()
    for group in node_settings(subject):
        if not group.taints_path or group.repels_pods:
            continue
        # The same for an object alone, and for one in a List.
        steps = [s for s in group.taints_path[len(subject.path) :] if isinstance(s, str)]
        key = ".".join(filter(None, (group.pool, *steps)))
        found = (
            _resource_and_taint(subject)
            if subject.kind_trait == NODE
            else _label_and_taint(group, subject)
        )
        if found and key not in reported:
            reported.add(key)
            what, taint = found
            yield Finding(
                path=group.taints_path,
                key=key,
                message=f"{what}, and no taint keeps other pods off: they may take the cpu and the "
                "memory that pods with GPUs need",
                help=f"add the taint {display_taint(taint)}, unless all nodes have GPUs",
            )


def _resource_and_taint(node: KubernetesObject) -> tuple[str, Taint] | None:
    """Return the node's GPU resource, and the taint that belongs to it."""
    offered = resources_of_node(node)
    for taint in node.profile.taints:
        for name in offered:
            is_gpu = node.profile.resource(name) is not None and matches_any(taint.resources, name)
            if is_gpu and offered_amount(offered, name) != 0:
                return f"the node offers {name}", taint
    return None


def _label_and_taint(group: NodeSettings, subject: KubernetesObject) -> tuple[str, Taint] | None:
    profile = subject.profile
    for label in group.labels:
        if profile.is_gpu_label(label.name, label.value):
            for taint in profile.taints:
                if _belongs_to(label.name, taint, profile):
                    return f"the nodes have the label {label.name}={label.value}", taint
    return None


def _belongs_to(label: str, taint: Taint, profile: Profile) -> bool:
    """Return whether nodes with `label` offer the resources of `taint`."""
    return matches_any(taint.resources, _RESOURCE_BY_LABEL.get(label, label)) or any(
        affinity.key == label and not set(affinity.resources).isdisjoint(taint.resources)
        for affinity in profile.affinities
    )


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(NODE | NODE_POOL,))
