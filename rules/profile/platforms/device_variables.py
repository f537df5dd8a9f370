"""Variables by which a container gets devices beside its cards, or more of a shared card.

Rules about containers explain each of them. Here they are together for what sees only their names.
"""

# NVIDIA's container toolkit gives devices for these (internal/modifier/gated.go and
# internal/config/image).
DEVICE_VARIABLES = (
    *("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS"),
    *("NVIDIA_MOFED", "NVIDIA_NVSWITCH", "NVIDIA_GDS", "NVIDIA_GDRCOPY"),
)
# Sharing systems set these, or switch their limits off by them: HAMi and Volcano, ACK, HAMi's
# Ascend, and MPS. Those of the dynamic loader can do it too, but all kinds of programs have them.
SHARE_VARIABLES = (
    *("CUDA_DISABLE_CONTROL", "GPU_CORE_UTILIZATION_POLICY", "CUDA_DEVICE_MEMORY_LIMIT*"),
    *("CUDA_DEVICE_SM_LIMIT*", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "CUDA_OVERSUBSCRIBE"),
    *("CUDA_TASK_PRIORITY", "CGPU_DISABLE", "ALIYUN_COM_GPU_*"),
    *("NPU_MEM_QUOTA", "NPU_PRIORITY", "NPU_GLOBAL_SHM_PATH"),
    *("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
    "CUDA_MPS_PIPE_DIRECTORY",
)
