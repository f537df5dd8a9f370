"""Whole cards and vGPUs that KubeVirt gives to virtual machines: each node names its own.

Source: NVIDIA/kubevirt-gpu-device-plugin, `pkg/device_plugin/device_plugin.go`. The name of a card
is that in pci.ids, which starts with the chip, as `nvidia.com/GP107_GEFORCE_GTX_1050`; that of a
vGPU is its type, as `nvidia.com/NVIDIA_A10-12Q`.
"""

from __future__ import annotations

import re

from rules.profile.profile import Profile

# Cards have other functions than the GPU too, such as an audio controller.
_CARD = re.compile(
    r"nvidia\.com/(?:G[A-Z]|AD|TU)\d{3}[A-Z]*(?:_(?!.{0,100}CONTROLLER).{1,100})?", re.ASCII
)
_VGPU = re.compile(r"nvidia\.com/(?:NVIDIA|GRID)_.{1,100}-\d{1,3}[ABCQ]\w?", re.ASCII)


def is_passthrough(resource: str) -> bool:
    """Return whether KubeVirt's device plugin for NVIDIA's cards could name a resource so."""
    return bool(_CARD.fullmatch(resource) or _VGPU.fullmatch(resource))


def is_whole_card(resource: str) -> bool:
    """Return whether KubeVirt's device plugin could give whole cards by this name."""
    return bool(_CARD.fullmatch(resource))


def is_gpu(resource: str, profile: Profile) -> bool:
    """Return whether a resource stands for GPUs, of `profile` or for virtual machines."""
    return profile.resource(resource) is not None or is_passthrough(resource)
