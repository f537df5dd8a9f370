"""The GPUs of GKE's node pools, and into which partitions GKE divides them."""

from types import MappingProxyType

_SIZES_OF_80_GB_CARDS = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")

# By the value of `cloud.google.com/gke-accelerator`. GKE's program for partitions does not compare
# a size with the card (GoogleCloudPlatform/container-engine-accelerators at 09e2ab1,
# partition_gpu/partition_gpu.go). NVIDIA's guide says which cards have it, and which have none:
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
PARTITION_SIZES_BY_CARD = MappingProxyType(
    {
        "nvidia-tesla-a100": ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
        "nvidia-a100-80gb": _SIZES_OF_80_GB_CARDS,
        "nvidia-h100-80gb": _SIZES_OF_80_GB_CARDS,
        "nvidia-h100-mega-80gb": _SIZES_OF_80_GB_CARDS,
        "nvidia-h200-141gb": ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
        "nvidia-b200": ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
        "nvidia-gb200": ("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
        "nvidia-rtx-pro-6000": ("1g.24gb", "2g.48gb", "4g.96gb"),
        "nvidia-l4": (),
        "nvidia-tesla-t4": (),
        "nvidia-tesla-v100": (),
        "nvidia-tesla-p100": (),
        "nvidia-tesla-p4": (),
    }
)
PARTITION_SIZES = frozenset(size for sizes in PARTITION_SIZES_BY_CARD.values() for size in sizes)
"""Every size that is known, whichever card has it."""
# The same guide has these of the A30 alone, which no machine of GKE has.
SIZES_OF_OTHER_CARDS = frozenset({"1g.6gb", "2g.12gb", "4g.24gb"})


# The label that says how the nodes of a pool share their cards, and its values for MPS. Pods there
# must set `hostIPC: true` (https://cloud.google.com/kubernetes-engine/docs/how-to/nvidia-mps-gpus).
SHARING_LABEL = "cloud.google.com/gke-gpu-sharing-strategy"
MPS_STRATEGIES = ("mps", "MPS")
