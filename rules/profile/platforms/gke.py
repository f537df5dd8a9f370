"""The GPUs of GKE's node pools, and into which partitions GKE divides them."""

import re
from types import MappingProxyType

from rules.base.text_matching import MAX_TYPOS, has_few_typos

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


def longer_models(model: str) -> list[str]:
    """The values of `cloud.google.com/gke-accelerator` that `model` is a part of.

    Such are `nvidia-h100` and `nvidia-t4`. Empty if it is known, or no part of a known one: there
    may be newer cards.
    """
    if model in PARTITION_SIZES_BY_CARD:
        return []
    maker, _, card = model.partition("-")
    parts = (f"{model}-", f"{maker}-tesla-{card}-")
    return (
        [known for known in PARTITION_SIZES_BY_CARD if f"{known}-".startswith(parts)]
        if card
        else []
    )


def nearest_model(model: str) -> str | None:
    """The value of `cloud.google.com/gke-accelerator` that `model` is misspelt for.

    The words with digits must be the same but for their case: another number is another card. None
    if `model` is known, or near no known one.
    """
    if model in PARTITION_SIZES_BY_CARD:
        return None
    card, maker = _model_words(model)
    for known in PARTITION_SIZES_BY_CARD:
        known_card, known_maker = _model_words(known)
        if card == known_card and (
            maker == known_maker or has_few_typos(MAX_TYPOS, maker, known_maker)
        ):
            return known
    return None


def _model_words(model: str) -> tuple[list[str], str]:
    """The words of `model` that have a digit, and the others as one text."""
    words = re.findall("[a-z0-9]+", model.lower())
    return [w for w in words if not w.isalpha()], "-".join(w for w in words if w.isalpha())


# The label that says how the nodes of a pool share their cards, and its values for MPS. Pods there
# must set `hostIPC: true` (https://cloud.google.com/kubernetes-engine/docs/how-to/nvidia-mps-gpus).
SHARING_LABEL = "cloud.google.com/gke-gpu-sharing-strategy"
MPS_STRATEGIES = ("mps", "MPS")
