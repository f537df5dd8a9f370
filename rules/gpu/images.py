"""What is known of an image by its name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rules.base.caching import cached_by_text

# Images that set NVIDIA_VISIBLE_DEVICES=all themselves: NVIDIA's own registries, and by the
# last two parts of the repository's name what others build on them, with what the tag must
# hold (nothing: any tag will do).
NVIDIA_REGISTRIES = ("nvcr.io/nvidia/", "nvcr.io/nim/")
_PORT = re.compile(":[0-9]+(?=/)")
# NVIDIA's own agents, which are there to see every card; none of them asks for one.
_AGENTS = frozenset(
    {"dcgm", "dcgm-exporter", "k8s-device-plugin", "gpu-feature-discovery", "gpu-operator"}
    | {"container-toolkit", "k8s-mig-manager", "k8s-dra-driver-gpu", "k8s-driver-manager", "driver"}
)
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
    """Whether `image` is known to set NVIDIA_VISIBLE_DEVICES=all itself."""
    # The name of a host may have capitals, and a port that leads to the same place.
    repository, pinned, _ = _PORT.sub("", image.lower()).partition("@")
    path, _, last = repository.rpartition("/")
    name, _, tag = last.partition(":")
    # Mirrors keep the name of the registry in the path.
    if any(registry in repository for registry in NVIDIA_REGISTRIES):
        return name not in _AGENTS
    words = CUDA_IMAGES.get(f"{path.rpartition('/')[2]}/{name}")
    # Beside a digest runtimes ignore the tag: it does not make the image another maker's.
    if words is None or (not pinned and any(maker in tag for maker in _OTHER_VENDORS_TAGS)):
        return False
    tags = (tag or "latest", "latest") if pinned else (tag or "latest",)
    return not words or any(word in each for each in tags for word in words)
