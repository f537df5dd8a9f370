"""The memory of NVIDIA's cards for data centres.

The sizes are those by which cards are sold. What a device plugin counts in GiB is never more: a T4
of 16 GB has 15360 MiB.
"""

import re

from rules.profile.platforms.records import Card, SourcePage

_READ_DATE = "2026-11-22"
_NVIDIA_DOCS = "https://docs.nvidia.com"


def _hugging_face_page(model: str) -> SourcePage:
    page = f"https://huggingface.co/hardware/{model.lower()}"
    return SourcePage("Hugging Face", f"hardware, {model}", url=page, read_date=_READ_DATE)


_MIG_GUIDE = SourcePage(
    "NVIDIA",
    "MIG user guide, supported GPUs",
    url=f"{_NVIDIA_DOCS}/datacenter/tesla/mig-user-guide/supported-gpus.html",
    read_date=_READ_DATE,
)
_GENMOL = SourcePage(
    "NVIDIA",
    "GenMol NIM, support matrix",
    url=f"{_NVIDIA_DOCS}/nim/bionemo/genmol/2.0.0/support-matrix.html",
    read_date=_READ_DATE,
)
_VISION_MODELS = SourcePage(
    "NVIDIA",
    "NIM for vision language models, support matrix",
    url=f"{_NVIDIA_DOCS}/nim/vision-language-models/2.1.1-variant/support-matrix.html",
    read_date=_READ_DATE,
)
_VGPU_H800 = SourcePage(
    "NVIDIA",
    "AI Enterprise, vGPU types of the H800",
    url=f"{_NVIDIA_DOCS}/ai-enterprise/release-8/latest/infra-software/vgpu/reference/"
    "hopper-h800.html",
)
_COMPUTE_ENGINE = SourcePage(
    "Google Cloud",
    "Compute Engine, GPU machine types",
    url="https://cloud.google.com/compute/docs/gpus",
    read_date=_READ_DATE,
)
_AZURE = "https://github.com/MicrosoftDocs/azure-docs/blob/main/articles/virtual-machines"
_AZURE_ND = SourcePage(
    "Microsoft Azure", "ND-series", "2020-02-03", f"{_AZURE}/nd-series.md", read_date=_READ_DATE
)
_AZURE_NDV2 = SourcePage(
    "Microsoft Azure", "NDv2-series", "2020-02-03", f"{_AZURE}/ndv2-series.md", read_date=_READ_DATE
)
_P100_BRIEF = SourcePage(
    "NVIDIA",
    "Tesla P100 PCIe GPU accelerator, product brief PB-08248-001, in a copy",
    "2016-10-03",
    "https://manualmachine.com/pny/tcsp100m16gbpb/8129252-user-manual",
    read_date=_READ_DATE,
)
_HARDWARE_TABLE = SourcePage(
    "Hugging Face",
    "huggingface.js, table of hardware",
    url="https://github.com/huggingface/huggingface.js/blob/main/packages/tasks/src/hardware.ts",
    read_date=_READ_DATE,
)
_A2 = SourcePage(
    "Cputronic", "NVIDIA A2", url="https://cputronic.com/pt/gpu/nvidia-a2", read_date=_READ_DATE
)
_A800_PCIE = SourcePage(
    "Cputronic",
    "NVIDIA A800 PCIe 40 GB",
    url="https://cputronic.com/de/gpu/nvidia-a800-pcie-40-gb",
    read_date=_READ_DATE,
)

CARDS = (
    Card("P4", (8,), (_COMPUTE_ENGINE,)),
    Card("P40", (24,), (_AZURE_ND,)),
    Card("P100", (12, 16), (_P100_BRIEF,)),
    Card("T4", (16,), (_COMPUTE_ENGINE,)),
    Card("V100", (16, 32), (_AZURE_NDV2,)),
    Card("A2", (16,), (_A2,)),
    Card("A10", (24,), (_HARDWARE_TABLE,)),
    Card("A10G", (24,), (_GENMOL,)),
    Card("A30", (24,), (_MIG_GUIDE,)),
    Card("A40", (48,), (_HARDWARE_TABLE,)),
    Card("A100", (40, 80), (_MIG_GUIDE,)),
    Card("A800", (40, 80), (_A800_PCIE, _hugging_face_page("A800"))),
    Card("L4", (24,), (_COMPUTE_ENGINE,)),
    Card("L20", (48,), (_hugging_face_page("L20"),)),
    Card("L40", (48,), (_HARDWARE_TABLE,)),
    Card("L40S", (48,), (_GENMOL,)),
    # The card of 141 GB has the name H20-3e.
    Card("H20", (96, 141), (_VISION_MODELS,)),
    Card("H100", (80, 94, 96), (_MIG_GUIDE,)),
    Card("H800", (80, 94), (_hugging_face_page("H800"), _VGPU_H800)),
    Card("H200", (141,), (_MIG_GUIDE,)),
    Card("GH200", (96, 144), (_MIG_GUIDE, _GENMOL)),
    Card("B200", (180,), (_MIG_GUIDE,)),
    Card("GB200", (186,), (_MIG_GUIDE,)),
    Card("B300", (288,), (_GENMOL,)),
    Card("GB300", (288,), (_GENMOL,)),
)
LARGEST_MEMORY_GB = max(card.memory[-1] for card in CARDS)
"""The memory of the largest card, in GB."""

_CARD_BY_MODEL = {card.model.lower(): card for card in CARDS}
# GKE calls the card of 40 GB by the model alone, and the other one `nvidia-a100-80gb`.
_EXACT_MEMORY_GB = {"nvidia-tesla-a100": 40}
_WORD_PATTERN = re.compile(r"[a-z0-9.]+", re.ASCII)
_SIZE_PATTERN = re.compile(r"([1-9][0-9]{0,2})gb", re.ASCII)
MAX_NAME_CHARACTERS = 63
"""So much of a name is read: the value of a label has no more."""


def find_card(name: str) -> Card | None:
    """The card that `name` is the name of, as labels of nodes have it; None if it is not known.

    Examples of names are `NVIDIA-A100-SXM4-80GB`, `Tesla-T4` and `nvidia-h100-mega-80gb`.
    """
    words = _WORD_PATTERN.findall(name[:MAX_NAME_CHARACTERS].lower())
    if "mig" in words:
        return None  # the name of a part of the card
    return next((_CARD_BY_MODEL[word] for word in words if word in _CARD_BY_MODEL), None)


def memory_sizes_gb(name: str) -> tuple[int, ...]:
    """The sizes, in GB, that the memory of the card `name` may have; none if it is not known."""
    card = find_card(name)
    if card is None:
        return ()
    if exact := _EXACT_MEMORY_GB.get(name.lower()):
        return (exact,)
    stated = _SIZE_PATTERN.search(name[:MAX_NAME_CHARACTERS].lower())
    size = int(stated[1]) if stated else 0
    return (size,) if size in card.memory else card.memory
