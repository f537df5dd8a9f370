"""Labels and resources of ACK's nodes, as far as code says more than a profile's table."""

from __future__ import annotations

# https://www.alibabacloud.com/help/doc-detail/191140.html
MODE = "ack.node.gpu.schedule"
PLACEMENT = "ack.node.gpu.placement"
SHARING_MODES = ("cgpu", "core_mem", "share", "mps")
# The modes that need the kernel module cGPU, which runs on ECS instances only.
CGPU_MODES = ("cgpu", "core_mem")
# What nodes with shared cards offer: the memory of their cards in GiB or MiB, computing power in
# percent of a card, and the number of cards. CARDS is also a label of pods: over how many cards
# their memory is spread.
GPU_MEM = "aliyun.com/gpu-mem"
GPU_CORE = "aliyun.com/gpu-core.percentage"
CARDS = "aliyun.com/gpu-count"
# Where a node has its region, the version of NVIDIA's driver and the model of its cards.
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "ack.aliyun.com/nvidia-driver-version")
CARD_LABELS = ("aliyun.accelerator/nvidia_name", "nvidia.com/gpu.product")
