"""What the name of an image shows about its content."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rules.base.caching import cached_by_text

# Images that set NVIDIA_VISIBLE_DEVICES=all: those in NVIDIA's registries, and those that others
# build on them (`CUDA_IMAGES`).
NVIDIA_REGISTRIES = ("nvcr.io/nvidia/", "nvcr.io/nim/")
_PORT = re.compile(":[0-9]+(?=/)")
# NVIDIA's own agents. They need to see every card and request none.
_AGENTS = frozenset(
    {"dcgm", "dcgm-exporter", "k8s-device-plugin", "gpu-feature-discovery", "gpu-operator"}
    | {"container-toolkit", "k8s-mig-manager", "k8s-dra-driver-gpu", "k8s-driver-manager", "driver"}
)
# The last two parts of the repository -> texts of which the tag must contain one; empty: any tag.
CUDA_IMAGES: Mapping[str, tuple[str, ...]] = {
    "nvidia/cuda": (),
    "pytorch/pytorch": ("cuda", "latest"),
    "tensorflow/tensorflow": ("gpu",),
    "vllm/vllm-openai": (),
    "lmsysorg/sglang": (),
    "huggingface/text-generation-inference": (),
    "rayproject/ray": ("gpu", "cu1"),
    "rayproject/ray-ml": ("gpu", "cu1"),
    "rayproject/ray-llm": ("cu1",),
}
_OTHER_VENDORS_TAGS = ("rocm", "cpu", "xpu", "intel", "gaudi", "hpu", "neuron", "tpu", "npu")


@cached_by_text
def is_cuda_image(image: str) -> bool:
    """Whether the image with the reference `image` is known to set NVIDIA_VISIBLE_DEVICES=all."""
    # The registry's host may be written with capitals and with a port: it is the same registry.
    repository, pinned, _ = _PORT.sub("", image.lower()).partition("@")
    path, _, last = repository.rpartition("/")
    name, _, tag = last.partition(":")
    # Mirrors keep the name of the registry in the path.
    if any(registry in repository for registry in NVIDIA_REGISTRIES):
        return name not in _AGENTS
    words = CUDA_IMAGES.get(f"{path.rpartition('/')[2]}/{name}")
    # Beside a digest runtimes ignore the tag, so the tag does not show another vendor's image.
    if words is None or (not pinned and any(maker in tag for maker in _OTHER_VENDORS_TAGS)):
        return False
    tags = (tag or "latest", "latest") if pinned else (tag or "latest",)
    return not words or any(word in each for each in tags for word in words)
