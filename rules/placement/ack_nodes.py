"""Labels of ACK's nodes and what they mean, as far as rules say more than a profile's table."""

from __future__ import annotations

# https://www.alibabacloud.com/help/doc-detail/191140.html
MODE = "ack.node.gpu.schedule"
PLACEMENT = "ack.node.gpu.placement"
SHARING_MODES = ("cgpu", "core_mem", "share", "mps")
# The modes that need the kernel module cGPU, which runs on ECS instances only.
CGPU_MODES = ("cgpu", "core_mem")
# Where a node has its region, the version of NVIDIA's driver and the model of its cards.
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "ack.aliyun.com/nvidia-driver-version")
CARD_LABELS = ("aliyun.accelerator/nvidia_name", "nvidia.com/gpu.product")
