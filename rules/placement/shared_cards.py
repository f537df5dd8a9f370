"""Whether the nodes that a pod selects divide their cards, by labels of NVIDIA's and GKE's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rules.objects.pod import Pod
from rules.placement.node_modes import allowed_values

GKE_PARTITION_SIZE = "cloud.google.com/gke-gpu-partition-size"
_PRODUCT = "nvidia.com/gpu.product"
_STRATEGIES = frozenset({"time-slicing", "time-sharing", "mps"})


def _is_strategy(value: str) -> bool:
    # GKE's page writes the values of nodes that auto-provisioning makes in upper case, with `_`.
    return value.lower().replace("_", "-") in _STRATEGIES


# https://github.com/NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery: the product of shared
# cards ends with -SHARED, and that of MIG devices has their profile after -MIG-.
_SHARED: Mapping[str, Callable[[str], bool]] = {
    "nvidia.com/gpu.sharing-strategy": _is_strategy,
    "cloud.google.com/gke-gpu-sharing-strategy": _is_strategy,
    _PRODUCT: lambda value: value.endswith("-SHARED"),
}
_MIG: Mapping[str, Callable[[str], bool]] = {
    GKE_PARTITION_SIZE: bool,
    _PRODUCT: lambda value: "-MIG-" in value and not value.endswith("-SHARED"),
}


def selects_shared_cards(pod: Pod) -> bool:
    """Whether all nodes that `pod` may run on let several containers share a card."""
    return _selects(pod, _SHARED)


def selects_mig_cards(pod: Pod) -> bool:
    """Whether all nodes that `pod` may run on offer MIG devices as `nvidia.com/gpu`."""
    return _selects(pod, _MIG)


def _selects(pod: Pod, labels: Mapping[str, Callable[[str], bool]]) -> bool:
    if not (pod.node_selector or pod.spec.get("affinity")):
        return False
    for label, divides in labels.items():
        values = allowed_values(pod, label)
        if values and all(map(divides, values)):
            return True
    return False
