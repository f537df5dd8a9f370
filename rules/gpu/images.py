"""The content of an image, as far as its name shows it."""

import re
from collections.abc import Mapping

from rules.base.caching import cached_by_text
from rules.base.text_matching import is_found
from rules.base.traits import SAMPLE_IMAGES
from rules.profile.platforms.makers import (
    AGENT_IMAGE_PATTERN,
    IMAGE_STEMS,
    NVIDIA,
    OTHER_IMAGE_PATTERN,
    OTHER_MAKERS,
    Maker,
    image_pattern,
)

# Images that set NVIDIA_VISIBLE_DEVICES=all: those in NVIDIA's registries, and those that others
# build on them (`CUDA_TAG_WORDS_BY_IMAGE`).
NVIDIA_REGISTRIES = ("nvcr.io/nvidia/", "nvcr.io/nim/")
# No runtime accepts a longer one: 255 characters of a name, 128 of a tag, and a digest
# (distribution/reference, `NameTotalLengthMax` and `TagRegexp`).
MAX_REFERENCE = 1024
_PORT_PATTERN = ":[0-9]+(?=/)"
_DOCKER_HUB_HOSTS = ("docker.io", "index.docker.io")
# NVIDIA's own agents. They need to see every card and request none, and their images set the
# variable to all (NVIDIA/k8s-device-plugin deployments/container/Dockerfile, and the Dockerfiles of
# NVIDIA/DCGM, NVIDIA/dcgm-exporter, NVIDIA/mig-parted and NVIDIA/k8s-dra-driver-gpu, now
# kubernetes-sigs/dra-driver-nvidia-gpu). The side containers of the driver are counted among them:
# their images are built on CUDA images.
AGENTS = frozenset(
    {"dcgm", "dcgm-exporter", "k8s-device-plugin", "gpu-feature-discovery"}
    | {"k8s-mig-manager", "k8s-dra-driver-gpu", "dra-driver-nvidia-gpu", "gdrdrv", "nvidia-fs"}
)
NVIDIA_OWNER = "nvidia"
# What the agents' charts and images run (NVIDIA/k8s-device-plugin deployments, NVIDIA/dcgm-exporter
# docker/Dockerfile*, NVIDIA/DCGM docker, NVIDIA/mig-parted deployments).
AGENT_PROGRAMS = frozenset(
    folder + name
    for folder in ("", "/usr/bin/")
    for name in (
        *("nvidia-device-plugin", "gpu-feature-discovery", "config-manager"),
        *("mps-control-daemon", "dcgm-exporter", "dcgm-exporter-entrypoint.sh"),
        *("nv-hostengine", "nvidia-mig-manager", "gpu-kubelet-plugin"),
        "compute-domain-kubelet-plugin",
    )
) | {"/usr/local/dcgm/dcgm-exporter-entrypoint.sh"}
# Images in NVIDIA's registries that set the variable to void, or are built without CUDA
# (NVIDIA/gpu-operator docker/Dockerfile, of which the validator's image is an older form, and the
# Dockerfiles of NVIDIA/nvidia-container-toolkit, NVIDIA/gpu-driver-container,
# NVIDIA/vgpu-device-manager and NVIDIA/kubevirt-gpu-device-plugin). The last two are helpers of the
# operator for virtual machines.
WITHOUT_GPUS = frozenset(
    {"gpu-operator", "gpu-operator-validator", "container-toolkit", "driver", "k8s-driver-manager"}
    | {"vgpu-manager", "vgpu-device-manager", "kubevirt-gpu-device-plugin", "k8s-cc-manager"}
    | {"nvidia-sandbox-device-plugin", "k8s-kata-manager"}
)
# The network operator's images, and helpers of the GPU operator. Agents among them, and images of
# DOCA with CUDA in their tag, are CUDA images all the same.
NETWORK_FOLDERS = ("nvidia/mellanox/", "nvidia/doca/")
FOLDERS_WITHOUT_GPUS = (*NETWORK_FOLDERS, "nvidia/cloud-native/")
# Where NVIDIA has parts of its GPU operator, released or not yet.
PLATFORM_REGISTRIES = (*NVIDIA_REGISTRIES, "nvcr.io/nvstaging/", "ghcr.io/nvidia/")
# The last two parts of the repository -> texts of which the tag must contain one; empty: any tag.
CUDA_TAG_WORDS_BY_IMAGE: Mapping[str, tuple[str, ...]] = {
    "nvidia/cuda": (),
    # On Docker Hub the agents are there, too.
    **{f"{NVIDIA_OWNER}/{name}": () for name in sorted(AGENTS)},
    "pytorch/pytorch": ("cuda", "latest"),
    "tensorflow/tensorflow": ("gpu",),
    "vllm/vllm-openai": (),
    "lmsysorg/sglang": (),
    "rapidsai/base": (),
    "rapidsai/notebooks": (),
    "huggingface/text-generation-inference": (),
    "rayproject/ray": ("gpu", "cu1"),
    "rayproject/ray-ml": ("gpu", "cu1"),
    "rayproject/ray-llm": ("cu1",),
}
# Images that set NVIDIA_VISIBLE_DEVICES=all and also run on cards of other makers, or without any
# (the Dockerfiles of ollama/ollama and jellyfin/jellyfin-packaging, and gpustack/gpustack
# pack/Dockerfile).
IMAGES_FOR_ANY_MAKER = ("ollama/ollama", "jellyfin/jellyfin", "gpustack/gpustack")
OTHER_VENDORS_TAGS = (
    *("rocm", "cpu", "xpu", "intel", "gaudi", "hpu", "neuron", "tpu", "npu"),
    *("musa", "dcu", "corex"),
)


@cached_by_text
def is_cuda_image(image: str) -> bool:
    """Return whether the image reference `image` is known to set NVIDIA_VISIBLE_DEVICES=all.

    The images of NVIDIA's agents are. `components.image_grants_gpus` excuses them in their own
    pods.
    """
    if len(image) > MAX_REFERENCE:
        return False
    path, name, tag, pinned = _path_name_tag_and_pin(image)
    if _is_in_nvidia_registry(path):
        return name in AGENTS or not _is_image_without_gpus(path, name, tag)
    words = CUDA_TAG_WORDS_BY_IMAGE.get(f"{_owner(path)}/{name}")
    # Beside a digest runtimes ignore the tag, so the tag does not show another vendor's image.
    if words is None or (not pinned and any(maker in tag for maker in OTHER_VENDORS_TAGS)):
        return False
    tags = (tag or "latest", "latest") if pinned else (tag or "latest",)
    return not words or any(word in each for each in tags for word in words)


@cached_by_text
def sets_visible_devices(image: str) -> bool:
    """Return whether `image`, even if no CUDA image, is known to set NVIDIA_VISIBLE_DEVICES=all."""
    if is_cuda_image(image) or len(image) > MAX_REFERENCE:
        return is_cuda_image(image)
    path, name, tag, pinned = _path_name_tag_and_pin(image)
    if f"{_owner(path)}/{name}" not in IMAGES_FOR_ANY_MAKER:
        return False
    return pinned or not any(maker in tag for maker in OTHER_VENDORS_TAGS)


@cached_by_text
def is_agent_image(image: str) -> bool:
    """Return whether `image` is one of NVIDIA's agents, which need every GPU of their node."""
    if len(image) > MAX_REFERENCE:
        return False
    path, name, _, _ = _path_name_tag_and_pin(image)
    return name in AGENTS and (_is_in_nvidia_registry(path) or _owner(path) == NVIDIA_OWNER)


@cached_by_text
def is_platform_image(image: str) -> bool:
    """Return whether `image` is a part of NVIDIA's platform that sets no variable for itself.

    Such a part manages every card of its node, as the driver and the validator of the operator do.
    The network operator's driver manages none.
    """
    if len(image) > MAX_REFERENCE:
        return False
    path, name, _, _ = _path_name_tag_and_pin(image)
    is_of_platform = any(registry in path for registry in PLATFORM_REGISTRIES)
    is_of_network = any(folder in path for folder in NETWORK_FOLDERS)
    return name in WITHOUT_GPUS and is_of_platform and not is_of_network


def image_tag(image: str) -> str:
    """The tag of `image`, `latest` if it has none; empty beside a digest, and for a placeholder.

    A repository with a capital letter is no valid one: it stands for another.
    """
    if len(image) > MAX_REFERENCE:
        return ""
    path, name, tag, pinned = _path_name_tag_and_pin(image)
    host, slash, repository = image.partition("/")
    named = repository if slash else host
    is_placeholder = "<" in image or named.partition(":")[0] not in f"{path}{name}"
    return "" if pinned or is_placeholder else tag or "latest"


def image_name(image: str) -> str:
    """The last part of the repository of `image`, without registry, tag and digest."""
    return _path_name_tag_and_pin(image)[1] if len(image) <= MAX_REFERENCE else ""


@cached_by_text
def full_repository(image: str) -> str:
    """The repository of `image` with its registry, as container runtimes complete it.

    Without a registry it is Docker Hub's, whose images without an owner belong to `library`
    (distribution/reference, `splitDockerDomain`). The registry's host is in small letters. Empty
    for a reference that is too long for every runtime.
    """
    if len(image) > MAX_REFERENCE:
        return ""
    path, slash, last = image.partition("@")[0].rpartition("/")
    name = path + slash + last.partition(":")[0]
    host, slash, rest = name.partition("/")
    is_host = any(sign in host for sign in ".:") or host == "localhost" or host != host.lower()
    if slash and is_host and host.lower() not in _DOCKER_HUB_HOSTS:
        return f"{host.lower()}/{rest}"
    repository = rest if slash and is_host else name
    return f"docker.io/{repository if '/' in repository else f'library/{repository}'}"


def has_digest(image: str) -> bool:
    """Return whether `image` names the image by digest, so that the name cannot move to another."""
    return "@" in image


@cached_by_text
def is_gpu_sample(image: str) -> bool:
    """Return whether `image` is one of ACK's samples for GPUs."""
    lower = image.lower()
    return any(words in lower for words in SAMPLE_IMAGES)


@cached_by_text
def maker_of_image(image: str) -> Maker | None:
    """The maker for whose devices `image` is; None if its reference does not tell."""
    if is_cuda_image(image):
        return NVIDIA
    text = _searched_text(image)
    # Most images have none of these, and the search for a pattern takes longer.
    has_stem = any(stem in text for stem in IMAGE_STEMS)
    if not has_stem or not is_found(OTHER_IMAGE_PATTERN, text):
        return None
    patterns = ((maker, image_pattern([maker])) for maker in OTHER_MAKERS)
    return next(maker for maker, pattern in patterns if pattern and is_found(pattern, text))


@cached_by_text
def is_agent_of_other_maker(image: str) -> bool:
    """Return whether `image`, no CUDA image, shows a maker's device plugin or its like."""
    return re.fullmatch(AGENT_IMAGE_PATTERN, _searched_text(image)) is not None


def _searched_text(image: str) -> str:
    """The text of `image` in which patterns of `profile.platforms.makers` are searched.

    Beside a digest runtimes ignore the tag, so it is left out. Empty for a reference that is too
    long for every runtime.
    """
    if len(image) > MAX_REFERENCE:
        return ""
    path, name, tag, pinned = _path_name_tag_and_pin(image)
    return f"/{path}{name}" if pinned else f"/{path}{name}:{tag}"


@cached_by_text
def _path_name_tag_and_pin(image: str) -> tuple[str, str, str, bool]:
    """The path of the repository with a slash at its end, its name, the tag, and if pinned."""
    # The registry's host may be written with capitals and with a port: it is the same registry.
    repository, pinned, _ = re.sub(_PORT_PATTERN, "", image.lower()).partition("@")
    path, slash, last = repository.rpartition("/")
    name, _, tag = last.partition(":")
    return path + slash, name, tag, bool(pinned)


def _owner(path: str) -> str:
    """The last folder of `path`, which ends with a slash."""
    return path[:-1].rpartition("/")[2]


def _is_in_nvidia_registry(path: str) -> bool:
    # Mirrors keep the name of the registry in the path.
    return any(registry in path for registry in NVIDIA_REGISTRIES)


def _is_image_without_gpus(path: str, name: str, tag: str) -> bool:
    has_cuda = "cuda" in name or "cuda" in tag
    return name in WITHOUT_GPUS or (
        not has_cuda and any(folder in path for folder in FOLDERS_WITHOUT_GPUS)
    )
