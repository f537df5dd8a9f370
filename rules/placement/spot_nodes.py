"""Nodes that a cloud may take back at any time: spot and preemptible machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from rules.base.json_access import as_text
from rules.objects.pod import Pod
from rules.placement.node_affinity import expressions, required_terms, selector_expressions

# The label of each platform that says so, and its values:
# cloud.google.com/kubernetes-engine/docs/concepts/spot-vms,
# learn.microsoft.com/azure/aks/spot-node-pool, karpenter.sh/docs/concepts/scheduling,
# docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
SPOT_LABELS: Mapping[str, tuple[str, ...]] = {
    "cloud.google.com/gke-spot": ("true",),
    "cloud.google.com/gke-preemptible": ("true",),
    "kubernetes.azure.com/scalesetpriority": ("spot",),
    "karpenter.sh/capacity-type": ("spot",),
    "eks.amazonaws.com/capacityType": ("SPOT",),
}


def spot_label(pod: Pod) -> str:
    """The key of the label by which the pod demands such a node; empty if it does not.

    It demands one by its node selector, or if every term of its required node affinity does.
    """
    if label := _label(selector_expressions(pod)):
        return label
    labels = [_label(demand for _, demand in expressions(term)) for _, term in required_terms(pod)]
    return labels[0] if labels and all(labels) else ""


def _label(demands: Iterable[Mapping[str, Any]]) -> str:
    return next(chain(_labels(demands), [""]))


def _labels(demands: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for demand in demands:
        key, values = as_text(demand.get("key")), demand.get("values")
        spot = SPOT_LABELS.get(key)
        if spot is None:
            continue
        is_listed = isinstance(values, list) and values and all(v in spot for v in values)
        # GKE has the label on these nodes alone, others on all nodes.
        is_present = demand.get("operator") == "Exists" and spot == ("true",)
        if is_present or (demand.get("operator") == "In" and is_listed):
            yield key
