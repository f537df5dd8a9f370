"""Refusals because of placed pods, in words for people."""

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
            remedy = f"change the constraint, or give the nodes the label {label}"
        case "PodTopologySpread":
            reason = (
                f"with one more pod there, the values of {label} would differ by more than "
                f"{obstacle.total} pods"
            )
            remedy = f"raise maxSkew for {label}, or make room where fewer of its pods are"
        case "InterPodAffinity" if obstacle.wanted:
            reason = f"its affinity to pods counts by {label}, which the nodes lack"
            remedy = f"change the affinity, or give the nodes the label {label}"
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
