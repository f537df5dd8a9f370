"""Misspelt names of GPU resources, and the right ones."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Edit, Path, rename
from rules.base.text_matching import has_few_typos
from rules.base.traits import NVIDIA_CARD
from rules.finding import Fix
from rules.gpu.devices import NATIVE_RESOURCES
from rules.inventory.inventory import DeviceClass, Inventory
from rules.profile.profile import Profile

ORDINARY_RESOURCES = frozenset({*NATIVE_RESOURCES, NVIDIA_CARD})
# Right name -> the wrong ones that users write.
MISTAKES_BY_RIGHT_NAME = {
    "nvidia.com/gpu": "gpu gpus GPU nvidia nvidia-gpu nvidia/gpu nvidia/gpus nvidia.com nvidia.gpu"
    " nvidia.com.gpu nvidia.com-gpu nvidia-com/gpu nvidia.com/gpus nvidia.com/gup nvdia.com/gpu"
    " nvidea.com/gpu nividia.com/gpu nvida.com/gpu nvidia.con/gpu nvidia.io/gpu"
    " nvidia.com/nvidia-gpu nvidia.com/gpu-count nvidia.com/gp nvidia.com/gpux nvidia.com/gpuu"
    " alpha.kubernetes.io/nvidia-gpu kubernetes.io/gpu",
    "amd.com/gpu": "amd amd-gpu amd/gpu amd.gpu amd.com.gpu amd.com/gpus amd.con/gpu"
    " rocm.amd.com/gpu",
    "gpu.intel.com/i915": "intel/gpu intel.com/i915 gpu.intel.com gpu.intel.com/gpu"
    " gpu.intel.com/i195 gpu.intel.com/1915",
    "google.com/tpu": "tpu tpus google/tpu google.tpu cloud.google.com/tpu",
    "habana.ai/gaudi": "gaudi habana/gaudi habana.com/gaudi habana.ai/gaudi2 habana.ai/gaudi3"
    " habana.ai/gpu habana.ai/hpu",
    "aliyun.com/gpu-mem": "gpu-mem aliyun/gpu-mem aliyun.com/gpu_mem aliyun.com/gpu-memory",
    "aliyun.com/gpu-core.percentage": "aliyun.com/gpu-core aliyun.com/gpu-core-percentage"
    " aliyun.com/gpu-core.percent aliyun.com/gpu-core-percent",
    "aliyun.com/gpu": "aliyun.com/gpus",
}
RIGHT_NAME_BY_MISTAKE = {
    wrong: right for right, texts in MISTAKES_BY_RIGHT_NAME.items() for wrong in texts.split()
}
# Names of Ascend's cards, as Ascend910 and Ascend910B4, in the plural.
ASCEND_PLURAL_PATTERN = r"(huawei\.com/Ascend[0-9]+[A-Z]?[0-9]*)s"
# A number of GPUs in the name, where it belongs in the amount, or the index of a card.
COUNT_IN_NAME_PATTERN = r"((?:nvidia|amd)\.com/gpu)(?:-[0-9]{1,3}|0)"
# A MIG profile with or without its punctuation: perhaps compute slices, slices, memory, and what
# the instance has besides, such as `.me`, `.me.all`, `.gfx` and `-me`; or the name of its shares.
MIG_PROFILE_PATTERN = (
    r"nvidia\.com/mig[-_.]?(?:([0-9])c[-_.]?)?([0-9])g[-_.]?([0-9]{1,3})g(?:b|ib)?([.-][a-z.-]+)?"
)
# Names that differ from the right one by a few letters. Short names have too many real neighbours
# (gpu, vgpu, npu), so one difference is allowed for every five letters.
LETTERS_PER_TYPO, MAX_TYPOS = 5, 2
# The same of domains. Short ones have neighbours that exist.
_MIN_DOMAIN_CHARACTERS, _MAX_DOMAIN_TYPOS = 10, 1
# The Neuron device plugin offers no other names: "k8s neuron device plugin" in
# https://awsdocs-neuron.readthedocs-hosted.com/en/latest/, deploy/includes.
_NAMES_OF_CLOSED_PLUGINS = ("aws.amazon.com/neuroncore", "aws.amazon.com/neuron")
# Comparing takes time, and no real container has so many misspelt names.
MAX_COMPARED_NAMES = 50


class Misspelling(NamedTuple):
    """The name that a misspelt one is meant for, and whether users are known to write it so."""

    right_name: str
    is_known: bool

    @property
    def kind(self) -> str:
        """Return the words before the right name in a message about the wrong one."""
        return "a mistake for" if self.is_known else "not known but close to"


def renaming_fix(
    places: Iterable[tuple[Path, Mapping[str, Any]]], name: str, right: str
) -> Fix | None:
    """The fix that renames `name` in the objects at `places`; None if one has `right` already."""
    edits: list[Edit] = []
    for path, amounts in places:
        if right in amounts:
            return None
        if name in amounts:
            edits.append(rename((*path, name), right))
    return Fix(f"rename it to {right}", tuple(edits))


def misspelt_resources(
    names: Iterable[str], profile: Profile, inventory: Inventory
) -> dict[str, Misspelling]:
    """Those of `names` that are misspelt names of GPU resources, each with what is meant.

    A name that a known DeviceClass has is right, whatever its devices are.
    """
    named_by_classes = inventory.compute_once(_names_of_classes, None)
    misspelt: dict[str, Misspelling] = {}
    compared: set[str] = set()
    for name in names:
        if name in ORDINARY_RESOURCES or name in profile.resources or name in named_by_classes:
            continue
        if meant := _correctly_formed_name(name):
            misspelt[name] = Misspelling(meant, is_known=True)
            continue
        if profile.resource(name):
            continue
        prefixed = name.removeprefix("requests.").removeprefix("limits.")
        spellings = (prefixed, name.lower(), name.removesuffix("s"))
        if right := (
            RIGHT_NAME_BY_MISTAKE.get(name)
            or next(filter(profile.resource, spellings), None)
            or profile.resource_name_in_any_case(name)
        ):
            misspelt[name] = Misspelling(right, is_known=True)
        elif len(compared) < MAX_COMPARED_NAMES:
            compared.add(name)
            nearest = profile.nearest_names.get(name)
            if nearest is None:
                nearest = profile.nearest_names.store(name, _nearest_name(name, profile))
            if nearest:
                misspelt[name] = Misspelling(nearest, is_known=False)
    return misspelt


def _names_of_classes(inventory: Inventory, _: None) -> frozenset[str]:
    classes = inventory.all_in(DeviceClass, None).values()
    return frozenset(known.extended_resource for known in classes)


# Compute slices of an instance of MIG -> the GB in the names of its profiles, on any card. From
# NVIDIA's MIG user guide, and NVIDIA/mig-parted deployments/container, pkg/mig/builder.
_MIG_MEMORY_BY_SLICES = {
    slices: frozenset(sizes.split())
    for slices, sizes in {
        "1": "5 6 10 12 16 18 20 23 24 34 35 36 45 47 67 70",
        "2": "10 12 20 24 32 35 36 45 47 48 67 70",
        "3": "20 40 47 48 71 72 90 93 95 135 139",
        "4": "20 24 40 47 48 71 72 90 93 95 96 135 139",
        "7": "40 80 94 96 141 144 180 186 189 269 278",
    }.items()
}
MIG_SLICES = "".join(_MIG_MEMORY_BY_SLICES)
MIG_RESOURCE_PATTERN = r"nvidia\.com/mig-(?:[0-9]c\.)?([0-9])g\.([0-9]{1,3})gb.*"
# Labels by which GPU feature discovery, NVIDIA's MIG manager and AMD's node labeller describe
# nodes: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery/README.md and internal/lm,
# NVIDIA/mig-parted README.md, ROCm/k8s-device-plugin cmd/k8s-node-labeller/README.md. No plugin
# offers such resources.
_LABELS_OF_CARDS = frozenset(
    {
        *("nvidia.com/gpu.memory", "nvidia.com/gpu.count", "nvidia.com/gpu.product"),
        *("nvidia.com/gpu.present", "nvidia.com/gpu.family", "nvidia.com/gpu.machine"),
        *("nvidia.com/gpu.mode", "nvidia.com/gpu.replicas", "nvidia.com/gpu.clique"),
        *("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"),
        *("nvidia.com/gpu.sharing-strategy", "nvidia.com/mig.strategy", "nvidia.com/mig.capable"),
        *("nvidia.com/mig.config", "nvidia.com/mps.capable"),
        *("amd.com/gpu.vram", "amd.com/gpu.cu-count", "amd.com/gpu.simd-count"),
        *("amd.com/gpu.device-id", "amd.com/gpu.family", "amd.com/gpu.product-name"),
    }
)


class NameFault(NamedTuple):
    """The reason why no node offers a resource, as the end of a sentence, and what to do."""

    reason: str
    advice: str


_MIG_ADVICE = "name a profile of the card: `nvidia-smi mig -lgip` lists them"
_WRONG_SLICES = NameFault("instances of MIG have 1, 2, 3, 4 or 7 compute slices", _MIG_ADVICE)
_UNKNOWN_PROFILE = NameFault("no card that is known has such a profile of MIG", _MIG_ADVICE)
_LABEL = NameFault(
    "this is a label of nodes and no resource",
    "select nodes by it, in nodeSelector or a node affinity, and ask for a card by its resource",
)


def fault_of_name(name: str) -> NameFault | None:
    """Return why no node offers the resource `name`; None if one may."""
    if name in _LABELS_OF_CARDS:
        return _LABEL
    profile = re.fullmatch(MIG_RESOURCE_PATTERN, name)
    if profile is None or profile[2] in _MIG_MEMORY_BY_SLICES.get(profile[1], ()):
        return None
    return _UNKNOWN_PROFILE if profile[1] in MIG_SLICES else _WRONG_SLICES


def _correctly_formed_name(name: str) -> str:
    """The name that is meant, if `name` has a count, a plural, or no MIG profile; else empty."""
    if counted := re.fullmatch(COUNT_IN_NAME_PATTERN, name):
        return counted[1]
    if plural := re.fullmatch(ASCEND_PLURAL_PATTERN, name):
        return plural[1]
    profile = re.fullmatch(MIG_PROFILE_PATTERN, name, re.IGNORECASE)
    if profile is None:
        return ""
    compute, slices, memory, rest = profile.groups()
    parts = f"{compute}c." if compute else ""
    right = f"nvidia.com/mig-{parts}{slices}g.{memory}gb{(rest or '').lower()}"
    return "" if right == name else right


def _nearest_name(name: str, profile: Profile) -> str:
    """Return the resource that `name` is most likely to mean; empty if none is near."""
    domain, slash, suffix = name.partition("/")
    if nearest := _name_of_model(domain, suffix, profile) or _begun_name(name):
        return nearest
    # Names with digits are other models, not typing errors.
    if not slash or any(letter.isdigit() for letter in suffix):
        return ""
    for known in profile.resources:
        known_domain, _, other = known.partition("/")
        if "*" in known:
            continue
        if suffix == other:
            slips = _MAX_DOMAIN_TYPOS if len(known_domain) >= _MIN_DOMAIN_CHARACTERS else 0
            is_near = has_few_typos(slips, domain, known_domain)
        else:
            slips = min(len(other) // LETTERS_PER_TYPO, MAX_TYPOS)
            is_near = domain == known_domain and (
                has_few_typos(slips, suffix, other) or _in_short(suffix) == _in_short(other)
            )
        if is_near:
            return known
    return ""


def _name_of_model(domain: str, suffix: str, profile: Profile) -> str | None:
    """The name with a model, as Ascend910, whose letters before the model `suffix` misspells."""
    letters = re.match("[A-Za-z]*", suffix)
    head = letters[0] if letters else ""
    for known in profile.resources:
        known_domain, _, pattern = known.partition("/")
        word, star, _ = pattern.partition("*")
        if not star or domain != known_domain or len(word) < LETTERS_PER_TYPO or word == head:
            continue
        model = suffix[len(head) :]
        if not model[:1].isdigit():
            continue
        right = f"{domain}/{word}{model}"
        is_near = head.lower() == word.lower() or has_few_typos(1, head, word)
        if is_near and profile.resource(right):
            return right
    return None


def _begun_name(name: str) -> str | None:
    """The name that `name` begins with, of those beside which its plugin offers no others."""
    return next(filter(name.startswith, _NAMES_OF_CLOSED_PLUGINS), None)


def _in_short(suffix: str) -> str:
    """The name without its domain, with the words that some platforms shorten as they do."""
    for word, short in (("memory", "mem"), ("number", "num"), ("percentage", "percent")):
        suffix = suffix.replace(word, short)
    return suffix
