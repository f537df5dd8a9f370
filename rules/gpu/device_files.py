"""Which files of a node are the device files of GPUs and other accelerators."""

from __future__ import annotations

import re

# The directories that contain them, and much else.
TREES = ("/dev", "/")
# The files by which programs, such as virtual machines, drive devices of any kind themselves.
_PASSED_THROUGH = r"/dev/vfio(/.+)?"
# Where NVIDIA's operator keeps the files of the driver, those of the devices among them
# (NVIDIA/gpu-operator assets/state-driver/0500_daemonset.yaml).
DRIVER_ROOTS = frozenset(
    f"{run}/nvidia{part}"
    for run in ("/run", "/var/run")
    for part in ("", "/driver", "/driver/dev", "/driver/dev/dri")
)
_NVIDIA_FILE = r"/dev/nvidia(\d+|ctl|-.+)"
_GPU_FILE = r"""(?x)/dev/(
        nvidia(\d+|ctl|-.+) | dxg               # NVIDIA, natively and under WSL
      | dri(/.*)? | m?kfd                       # AMD, Intel, Hygon
      | v?davinci(\d+|_manager.*)               # Huawei Ascend
      | accel(\d+|/.*)? | hl(\d+|_controlD\d+)  # Intel Gaudi, Google TPU
      | neuron\d+ | cambricon_.+ | iluvatar\d* | mxcd  # AWS, Cambricon, Iluvatar, MetaX
      | gcu(\d+(vid\d+)?|ctl)? | mtgpu\.?\d*    # Enflame, Moore Threads
      | biren(-m|/.*)? | xpu(\d+|ctrl) | vastai.* # Biren, Kunlunxin, Vastai
      | nvhost-(.+-)?gpu | nvgpu(/.*)?          # NVIDIA's Tegra
      | apex_\d+ | tenstorrent(/.*)? | rngd(/.*)?  # Coral, Tenstorrent, Furiosa
      | char/(195|226):\d+                      # NVIDIA and DRM, by their numbers
    )"""
# Without the file of a card these give no access to one.
_HELPER = r"/dev/nvidia(ctl|-uvm.*|-modeset|-caps(/.*)?)"
MAJOR_NUMBERS = (195, 226)
"""The numbers by which the kernel knows the devices of NVIDIA's driver and of DRM."""


def is_gpu_file(path: str) -> bool:
    """Whether the cleaned `path` is a device file of a GPU, or a directory of GPU drivers.

    NVIDIA's files count below any directory: a driver may have its own root.
    """
    return (
        path in DRIVER_ROOTS
        or re.fullmatch(_GPU_FILE, path) is not None
        or re.fullmatch(_NVIDIA_FILE, path[max(path.rfind("/dev/nvidia"), 0) :]) is not None
    )


def is_passed_through(path: str) -> bool:
    """Whether the cleaned `path` is a file of devices that are passed through, maybe GPUs."""
    return re.fullmatch(_PASSED_THROUGH, path) is not None


def is_helper_file(path: str) -> bool:
    """Whether the cleaned `path` is a file that NVIDIA's driver needs beside that of a card."""
    return re.fullmatch(_HELPER, path) is not None
