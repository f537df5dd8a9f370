"""The taints of nodes that come and go."""

from rules.base.traits import NATIVE_TAINT_PREFIX

# kubernetes/cloud-provider api/well_known_taints.go, kubernetes/autoscaler
# cluster-autoscaler/utils/taints/taints.go, kubernetes-sigs/karpenter pkg/apis/v1/taints.go,
# kubernetes-sigs/cluster-api NodeUninitializedTaint
_BEGINNINGS = (
    NATIVE_TAINT_PREFIX,
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupt",  # -ed, and before version 1 -ion
    "karpenter.sh/unregistered",
    "node.cluster.x-k8s.io/uninitialized",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
)
# Drivers of networks and volumes remove theirs as soon as they run on the node, such as
# node.cilium.io/agent-not-ready: docs.cilium.io/en/stable/installation/taints
_END = "/agent-not-ready"


def is_temporary_taint(key: str) -> bool:
    """Return whether a controller removes the taint again, or sets it before it removes the node.

    No pod of a user tolerates it.
    """
    return key.startswith(_BEGINNINGS) or key.endswith(_END)
