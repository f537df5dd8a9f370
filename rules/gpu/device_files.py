"""Which files of a node are the device files of GPUs and other accelerators."""

from __future__ import annotations

import re

# The directories that contain them, and much else.
TREES = ("/dev", "/")

_GPU_FILE = re.compile(
    r"""/dev/(
        nvidia(\d+|ctl|-.+) | dxg               # NVIDIA, natively and under WSL
      | dri(/.*)? | m?kfd                       # AMD, Intel, Hygon
      | v?davinci(\d+|_manager.*)               # Huawei Ascend
      | accel(\d+|/.*)? | hl(\d+|_controlD\d+)  # Intel Gaudi, Google TPU
      | neuron\d+ | cambricon_.+ | iluvatar\d* | mxcd  # AWS, Cambricon, Iluvatar, MetaX
      | nvhost-(.+-)?gpu | nvgpu(/.*)?          # NVIDIA's Tegra
      | apex_\d+ | tenstorrent(/.*)? | rngd(/.*)?  # Coral, Tenstorrent, Furiosa
      | char/(195|226):\d+                      # NVIDIA and DRM, by their numbers
    )""",
    re.VERBOSE,
)
# Without the file of a card these give no access to one.
_HELPER = re.compile(r"/dev/nvidia(ctl|-uvm.*|-modeset|-caps(/.*)?)")
MAJOR_NUMBERS = (195, 226)
"""The numbers by which the kernel knows the devices of NVIDIA's driver and of DRM."""


def is_gpu_file(path: str) -> bool:
    """Whether the cleaned `path` is a device file of a GPU, or a directory of only such files."""
    return _GPU_FILE.fullmatch(path) is not None


def is_helper_file(path: str) -> bool:
    """Whether the cleaned `path` is a file that NVIDIA's driver needs beside that of a card."""
    return _HELPER.fullmatch(path) is not None
