"""Refusals because of placed pods and of volumes, in words for people."""

from __future__ import annotations

from cluster.why.filters import Obstacle
from cluster.why.placed.affinity import REFUSED_BY_PLACED_PODS


def words_about_pods(obstacle: Obstacle) -> tuple[str, str]:
    """The reason, and what would change it; of other obstacles the message and nothing."""
    label, other = obstacle.subject, obstacle.pod
    reason, remedy = obstacle.message, ""
    match obstacle.plugin:
        case "NodePorts":
            reason = f"the port {label} of the node is taken, as by {other}"
            remedy = "leave hostPort out, or wait until a pod that has it ends"
        case "PodTopologySpread" if not obstacle.total:
            reason = f"a topology spread constraint counts by {label}, which the nodes lack"
            remedy = f"give the nodes the label {label}, or change the constraint"
        case "PodTopologySpread":
            reason = (
                f"with one more pod there, the values of {label} would differ by more than "
                f"{obstacle.total} pods"
            )
            remedy = "make room where fewer of its pods are, or raise maxSkew"
        case "VolumeRestrictions":
            reason = f"only one pod at a time can have its claim {label}, and {other} has it"
            remedy = "wait until that pod ends, or use a claim of its own"
        case "VolumeBinding" | "VolumeZone" if obstacle.wanted:
            reason = f"its volume {label} can only be used where {obstacle.wanted}"
            remedy = "let it run where the volume is, or make a volume where it can run"
        case "VolumeBinding":
            reason = f"no volume is free for its claim {label}, and none can be made there"
            remedy = "make a volume for these nodes, or use another storage class"
        case "InterPodAffinity" if not other:
            reason = f"no pod that its affinity asks for is on a node with the same {label}"
            remedy = "change the affinity, or start a pod that it asks for"
        case "InterPodAffinity" if obstacle.message == REFUSED_BY_PLACED_PODS:
            reason = (
                f"the anti-affinity of a pod with the same {label} keeps it away, as of {other}"
            )
            remedy = "change that anti-affinity, or wait until such pods end"
        case "InterPodAffinity":
            reason = f"its anti-affinity keeps it from a pod with the same {label}, as from {other}"
            remedy = "change the anti-affinity, or wait until such pods end"
    return reason, remedy
