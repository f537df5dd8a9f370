"""The values of labels by which platforms name what their nodes have, and near misses of them."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from rules.base.text_matching import MAX_TYPOS, has_few_typos, has_placeholder, nearest_word
from rules.profile.platforms.gke import PARTITION_SIZES_BY_CARD
from rules.profile.platforms.records import SourcePage

MAX_VALUE_CHARACTERS = 63
"""The API server accepts no longer value of a label."""
_MAX_SHOWN_VALUES = 5


class LabelValues(NamedTuple):
    """The values of a label of nodes.

    - `known`: those that are known, and `source`, the page that has them.
    - `others` says what else nodes may have: `none` but `tolerated`, which pods have no reason to
      select; newer `models`; or what `users` name.
    - `setter` and `device` are for messages: who names what.
    - `maker_words`: words that name no model; some writers leave them out, others add them.
    - `other_names`: words of a model by another name that its maker uses.
    - `has_all_forms`: a model that is known has no further values.
    - `is_lower_case`: no value has capital letters.
    """

    known: tuple[str, ...]
    source: SourcePage
    others: Literal["none", "models", "users"]
    setter: str
    device: str = "GPU"
    tolerated: tuple[str, ...] = ()
    maker_words: frozenset[str] = frozenset({"nvidia", "tesla", "amd"})
    other_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    has_all_forms: bool = False
    is_lower_case: bool = False


_READ_DATE = "2026-11-30"
_GKE_DOCS = "https://cloud.google.com/kubernetes-engine/docs"


def _page_of_gke(title: str, path: str) -> SourcePage:
    return SourcePage("Google Cloud", f"GKE, {title}", url=f"{_GKE_DOCS}/{path}")


_KARPENTER = "https://github.com/aws/karpenter-provider-aws"
_INSTANCE_TYPES = SourcePage(
    "Karpenter",
    "instance types of AWS, and lowerKabobCase in pkg/providers/instancetype/types.go, at 1d92708",
    url=f"{_KARPENTER}/blob/main/website/content/en/docs/reference/instance-types.md",
    read_date=_READ_DATE,
)
_GPUS_OF_AWS = LabelValues(
    known=(
        *("a100", "a10g", "b200", "b300", "h100", "h200", "l4", "l40s", "t4", "t4g", "v100"),
        *("radeon-pro-v520", "rtx-pro-4500", "rtx-pro-server-6000"),
    ),
    source=_INSTANCE_TYPES,
    others="models",
    setter="Karpenter",
    is_lower_case=True,
)
_MAKERS_OF_GPUS = LabelValues(
    known=("nvidia", "amd"),
    source=_INSTANCE_TYPES,
    others="models",
    setter="Karpenter",
    is_lower_case=True,
)
_ACCELERATORS_OF_AWS = LabelValues(
    known=("inferentia", "inferentia2", "trainium", "trainium2", "qualcomm-ai100"),
    source=_INSTANCE_TYPES,
    others="models",
    setter="Karpenter",
    device="accelerator",
    is_lower_case=True,
)
# EKS Auto Mode has Karpenter's labels of GPUs under another domain
# (https://docs.aws.amazon.com/eks/latest/userguide/create-node-pool.html).
_DOMAINS_OF_AWS = ("karpenter.k8s.aws", "eks.amazonaws.com")

# Karpenter for Azure, and AKS with node auto-provisioning. The name is the word of the machine's
# size, as in Standard_NC24ads_A100_v4. Of V100 only examples are known: its machines have no such
# word.
_AZURE_PROVIDER = SourcePage(
    "Azure",
    "karpenter-provider-azure, setRequirementsGPU in pkg/providers/instancetype/instancetypes.go "
    "and the sizes in pkg/utils/supported-gpus.yaml, at 021c778",
    url="https://github.com/Azure/karpenter-provider-azure",
    read_date="2026-12-01",
)
_GPUS_OF_AZURE = LabelValues(
    known=("A10", "A100", "H100", "H200", "T4"),
    source=_AZURE_PROVIDER,
    others="models",
    setter="Karpenter",
    tolerated=("V100",),
)

LABELS: Mapping[str, LabelValues] = MappingProxyType(
    {
        "cloud.google.com/gke-accelerator": LabelValues(
            known=tuple(PARTITION_SIZES_BY_CARD),
            source=_page_of_gke("run GPUs in Standard node pools", "how-to/gpus"),
            others="models",
            setter="Google Cloud",
        ),
        # The names of v3, v4 and v5e with a topology of one machine or of several, and that the
        # others have one form, are in the TPU driver of Kubernetes as well, util.go AcceleratorGen.
        "cloud.google.com/gke-tpu-accelerator": LabelValues(
            known=(
                *("tpu-v3-device", "tpu-v3-slice", "tpu-v4-podslice", "tpu-v4-lite-device"),
                *("tpu-v5-lite-device", "tpu-v5-lite-podslice", "tpu-v5p-slice"),
                *("tpu-v6e-slice", "tpu7x"),
            ),
            source=_page_of_gke("plan TPUs", "concepts/plan-tpus"),
            others="models",
            setter="GKE",
            device="TPU",
            maker_words=frozenset({"tpu"}),
            other_names={"v5e": ("v5", "lite"), "v7x": ("tpu7x",)},
            has_all_forms=True,
        ),
        # GKE's documents name `disabled` as a setting of pools, and its program that resets GPUs
        # writes `reset`. Whether nodes keep them is not known.
        "cloud.google.com/gke-gpu-driver-version": LabelValues(
            known=("default", "latest"),
            source=_page_of_gke("deploy GPU workloads in Autopilot", "how-to/autopilot-gpus"),
            others="none",
            setter="GKE",
            device="driver",
            tolerated=("disabled", "reset"),
        ),
        # Users name classes of their own, as objects of the kind ComputeClass.
        "cloud.google.com/compute-class": LabelValues(
            known=("Accelerator",),
            source=_page_of_gke("deploy GPU workloads in Autopilot", "how-to/autopilot-gpus"),
            others="users",
            setter="GKE",
            device="class",
        ),
        # The label is a word of many platforms; these are Huawei's values.
        "accelerator": LabelValues(
            known=("huawei-Ascend910", "huawei-Ascend310P", "huawei-Ascend310"),
            source=SourcePage(
                "Huawei",
                "MindCluster, component/ascend-device-plugin/pkg/server/labelers.go",
                url="https://gitcode.com/Ascend/mind-cluster",
            ),
            others="users",
            setter="MindCluster",
        ),
        **{f"{domain}/instance-gpu-name": _GPUS_OF_AWS for domain in _DOMAINS_OF_AWS},
        **{f"{domain}/instance-gpu-manufacturer": _MAKERS_OF_GPUS for domain in _DOMAINS_OF_AWS},
        "karpenter.k8s.aws/instance-accelerator-name": _ACCELERATORS_OF_AWS,
        "karpenter.azure.com/sku-gpu-name": _GPUS_OF_AZURE,
        "karpenter.azure.com/sku-gpu-manufacturer": _MAKERS_OF_GPUS._replace(
            source=_AZURE_PROVIDER
        ),
    }
)
_WORD_PATTERN = "[a-z0-9]+"
_MEMORY_PATTERN = "[0-9]+gb"


class NearMiss(NamedTuple):
    """A value that is near known ones.

    - `advice`: what to write.
    - `reason`: why the value is wrong; empty if it is so because no node has it.
    - `may_be_of_users`: nodes of users may have the value.
    """

    advice: str
    reason: str = ""
    may_be_of_users: bool = False


def near_miss(label: str, value: str) -> NearMiss | None:
    """Return how `value` of one of LABELS is near a known one; None if it is not, or is known."""
    values = LABELS[label]
    meant = meant_values(values, value)
    if not meant:
        return None
    right = " or ".join(meant[:_MAX_SHOWN_VALUES])
    if len(meant) > _MAX_SHOWN_VALUES:
        right += " or a like one"
    if values.others == "users":
        advice = f"write {right}, unless nodes of yours have this value"
        return NearMiss(advice, f"and {values.setter} writes {right}", may_be_of_users=True)
    is_longer = values.others == "models" and len(value) < min(map(len, meant))
    name = f"and {values.setter}'s name for this {values.device} is longer"
    return NearMiss(f"write {right}", name if is_longer else "")


def meant_values(values: LabelValues, value: str) -> tuple[str, ...]:
    """The values that `value` may be meant for; none if it is known, or near no known one."""
    is_known = value in values.known or value in values.tolerated
    if is_known or len(value) > MAX_VALUE_CHARACTERS or has_placeholder(value):
        return ()
    lower = value.lower()
    if values.others == "users":
        return tuple(known for known in values.known if known.lower() == lower)
    if values.others == "none":
        nearest = nearest_word(value, values.known)
        return (nearest,) if nearest else values.known
    if found := _models_meant(values, lower):
        return found
    return (lower,) if values.is_lower_case and value != lower else ()


def _models_meant(values: LabelValues, value: str) -> tuple[str, ...]:
    """The known values that `value`, in small letters, is written for another way.

    The words with digits must be the same: another number is another model.
    """
    letters = "".join(re.findall(_WORD_PATTERN, value))
    for known in values.known:
        if letters == "".join(re.findall(_WORD_PATTERN, known.lower())):
            return (known,)
    words = _words(value, values)
    model = _words_with_digits(words)
    if not any(re.fullmatch(_MEMORY_PATTERN, word) is None for word in model):
        return _beginning_with(words, values)
    longer, misspelt, same = [], [], []
    for known in values.known:
        known_words = _words(known, values)
        own, others = (_without(values.maker_words, each) for each in (words, known_words))
        if others[: len(own)] == own:
            longer.append(known)
        if model == _words_with_digits(known_words):
            same.append(known)
            if has_few_typos(MAX_TYPOS, _text(words), _text(known_words)):
                misspelt.append(known)
    return tuple(longer or misspelt or (same if values.has_all_forms else ()))


def _beginning_with(words: list[str], values: LabelValues) -> tuple[str, ...]:
    """The known values that begin with `words`, which name no model; makers may be left out.

    None begins with the name of a maker alone, which nodes of users may have.
    """
    if not words or (len(words) == 1 and words[0] in values.maker_words):
        return ()
    own = _without(values.maker_words, words)
    return tuple(
        known
        for known in values.known
        if (known_words := _words(known, values))[: len(words)] == words
        or (own and _without(values.maker_words, known_words)[: len(own)] == own)
    )


def _words(value: str, values: LabelValues) -> list[str]:
    words = re.findall(_WORD_PATTERN, value.lower())
    return [part for word in words for part in values.other_names.get(word, (word,))]


def _words_with_digits(words: Iterable[str]) -> list[str]:
    return [word for word in words if not word.isalpha()]


def _text(words: Iterable[str]) -> str:
    """The words without digits as one text, in which letters may be wrong."""
    return "-".join(word for word in words if word.isalpha())


def _without(unwanted: Iterable[str], words: Iterable[str]) -> list[str]:
    return [word for word in words if word not in unwanted]
