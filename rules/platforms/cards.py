"""The memory of NVIDIA's cards for data centres.

The sizes are those by which cards are sold. What a device plugin counts in GiB is never more: a T4
of 16 GB has 15360 MiB.
"""

from __future__ import annotations

import re

from rules.platforms.records import Card, Source

_MIG_GUIDE = Source(
    "NVIDIA",
    "MIG user guide, supported GPUs",
    url="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html",
)
_NIM = Source(
    "NVIDIA",
    "NIM for large language models, support matrix",
    url="https://docs.nvidia.com/nim/large-language-models/1.1.0/support-matrix.html",
)
_COMPUTE_ENGINE = Source(
    "Google Cloud",
    "Compute Engine, GPU machine types",
    url="https://cloud.google.com/compute/docs/gpus",
)
_DATA_SHEETS = Source("NVIDIA", "data sheet of the card")
_HYPERPOD = Source(
    "AWS",
    "sagemaker-hyperpod-cli, pull request 403",
    url="https://github.com/aws/sagemaker-hyperpod-cli/pull/403",
)

CARDS = (
    Card("P4", (8,), _COMPUTE_ENGINE),
    Card("P40", (24,), _DATA_SHEETS),
    Card("P100", (12, 16), _DATA_SHEETS),
    Card("T4", (16,), _COMPUTE_ENGINE),
    Card("V100", (16, 32), _DATA_SHEETS),
    Card("A2", (16,), _DATA_SHEETS),
    Card("A10", (24,), _DATA_SHEETS),
    Card("A10G", (24,), _NIM),
    Card("A30", (24,), _MIG_GUIDE),
    Card("A40", (48,), _DATA_SHEETS),
    Card("A100", (40, 80), _MIG_GUIDE),
    Card("A800", (40, 80), _DATA_SHEETS),
    Card("L4", (24,), _COMPUTE_ENGINE),
    Card("L20", (48,), _DATA_SHEETS),
    Card("L40", (48,), _DATA_SHEETS),
    Card("L40S", (48,), _NIM),
    Card("H20", (96, 141), _MIG_GUIDE),
    Card("H100", (80, 94, 96), _MIG_GUIDE),
    Card("H800", (80, 94), _DATA_SHEETS),
    Card("H200", (141,), _MIG_GUIDE),
    Card("GH200", (96, 144), _DATA_SHEETS),
    Card("B200", (180,), _MIG_GUIDE),
    Card("GB200", (186,), _MIG_GUIDE),
    Card("B300", (288,), _HYPERPOD),
    Card("GB300", (288,), _DATA_SHEETS),
)
LARGEST = max(card.memory[-1] for card in CARDS)
"""The memory of the largest card, in GB."""
SMALLEST = min(card.memory[0] for card in CARDS)
"""The memory of the smallest card, in GB."""

_BY_MODEL = {card.model.lower(): card for card in CARDS}
# GKE calls the card of 40 GB by the model alone, and the other one `nvidia-a100-80gb`.
_EXACT = {"nvidia-tesla-a100": 40}
_WORD = re.compile(r"[a-z0-9.]+", re.ASCII)
_SIZE = re.compile(r"([1-9][0-9]{0,2})gb", re.ASCII)
_MAX_LENGTH = 63  # of a label's value


def find_card(name: str) -> Card | None:
    """The card that `name` is the name of, as labels of nodes have it; None if it is not known.

    Examples of names are `NVIDIA-A100-SXM4-80GB`, `Tesla-T4` and `nvidia-h100-mega-80gb`.
    """
    words = _WORD.findall(name[:_MAX_LENGTH].lower())
    if "mig" in words:
        return None  # the name of a part of the card
    return next((_BY_MODEL[word] for word in words if word in _BY_MODEL), None)


def memory_sizes(name: str) -> tuple[int, ...]:
    """The sizes, in GB, that the memory of the card `name` may have; none if it is not known."""
    card = find_card(name)
    if card is None:
        return ()
    if exact := _EXACT.get(name.lower()):
        return (exact,)
    stated = _SIZE.search(name[:_MAX_LENGTH].lower())
    size = int(stated[1]) if stated else 0
    return (size,) if size in card.memory else card.memory
