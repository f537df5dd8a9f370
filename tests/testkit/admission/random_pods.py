"""Random pods about which the exported rules have much to say."""

from __future__ import annotations

import random
from typing import Any

_NAMES = (
    *("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "PATH"),
    *("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES_X", "IX_VISIBLE_DEVICES"),
    *("AWS_NEURON_VISIBLE_DEVICES", "DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_TIMEOUT"),
    *("CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MOFED"),
    *("NVIDIA_NVSWITCH", "NVIDIA_GDS", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"),
    *("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT_0", "CUDA_DISABLE_CONTROL", "CGPU_DISABLE"),
    *("GPU_CORE_UTILIZATION_POLICY", "CUDA_TASK_PRIORITY", "NPU_MEM_QUOTA", "CUDA_VISIBLE_DEVICES"),
    *("ALIYUN_COM_GPU_MEM_IDX", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DEVICE_MEMORY_LIMIT_x"),
)
_VALUES = (
    *(
        "all",
        "ALL",
        "void",
        " void ",
        "none",
        "",
        "0,1",
        "void,0",
        "0,void",
        "none,all",
        "all,none",
    ),
    *(
        "$(X)",
        "$(X,void)",
        "$(X),void",
        "void,$(X)",
        "$(X,void",
        "$$(X)",
        "a)b,void",
        "$(a$(b),void",
    ),
    *("true", "0, 1", "1,GPU-a", "-1", "disable", "T"),
    *(",", " , ", "\u001cvoid", "\u00a0void", 'a"b\\c', "enabled", "x" * 70, "é", "all,0"),
)
_PREFIXES = (
    *("NVIDIA_", "NVIDIA_VISIBLE_", "N", "DOCKER_", "DOCKER_RESOURCE_X", "H", "CUDA_", "Z_"),
    *("ALIYUN_COM_GPU_", "CUDA_DEVICE_MEMORY_LIMIT_", "A"),
)
_RESOURCES = (
    *("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "google.com/tpu", "example.com/x"),
    *("nvidia.com/gpu.shared", "deviceclass.resource.kubernetes.io/gpu.nvidia.com", "rdma/hca"),
    *("gpu.intel.com/monitoring", "habana.ai/gaudi", "nvidia.com/a100", "huawei.com/Ascend910"),
    *("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu-count"),
    *(
        "nvidia.com/gpumem",
        "nvidia.com/gpucores",
        "volcano.sh/vgpu-memory",
        "tencent.com/vcuda-core",
    ),
    *("koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/gpu-core"),
    *("koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory", "tencent.com/vcuda-memory"),
    *("huawei.com/Ascend910B-memory", "huawei.com/npu-core", "nvidia.com/gpus", "nvidia.com/gpu-2"),
    *("nvidia.com/MIG-1g5gb", "nvidia.com/mig-1c.2g.10gb.me", "nvidia.com/mig-9g.10gb", "amd/gpu"),
    *("NVIDIA.com/GPU", "limits.nvidia.com/gpu"),
)
_IMAGES = (
    *("registry.example.com/app:1", "nvcr.io/nvidia/cuda:12", "NVCR.IO:443/nvidia/pytorch:24.01"),
    *("pytorch/pytorch", "pytorch/pytorch:2-cpu", "mirror.example.com/nvcr.io/nvidia/doca/x:1"),
    *("rocm/pytorch:6", "vault.habana.ai/gaudi-docker/x:1", "a/neuron/b:1", "x:1-ascend-2"),
    *("vllm/vllm-openai@sha256:0", "rayproject/ray:2-gpu", "nvcr.io/nvidia/gpu-operator:1"),
)
_PATHS = (
    *("/dev", "/", "/dev/nvidia0", "/dev/./dri//card0", "/proc/1/root/dev/nvidia0", "/dev/net"),
    *("/proc/1/task/2/root", "/proc/1/task/root", "/run", "/run/containerd/containerd.sock"),
    *("/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/etc/cdi/x", "/home", "/data"),
    *("/sys/bus/pci", "/sys/class/drm/card0", "/dev/vfio/1", "/dev/char/195:0", "/var", "/usr/bin"),
    *("/opt/x/dev/nvidia-uvm", "/dev/null", "/dev/nvidiactl", "/run/nvidia/driver"),
)
_MOUNTS = (
    *("/var/run/nvidia-container-devices/all", "/var/run/nvidia-container-devices", "/mnt"),
    *("/var/run/../run/nvidia-container-devices/0", "/var/run/nvidia-container-devices/../x"),
    *("/var/run/nvidia-container-devicesvoid", "/var//run/./nvidia-container-devices/void/"),
    *(
        "/usr/local/vgpu/x",
        "/usr/local/a/../vgpu",
        "/etc",
        "/etc/ld.so.preload",
        "/etc/vcuda/a/./b",
    ),
    *("/var/run/nvidia-container-devices/imex/3", "/var/run/nvidia-container-devices/cdi/a/b/c"),
)
_ANNOTATIONS = (
    *(
        "cdi.k8s.io/a",
        "nvidia.cdi.k8s.io/pod",
        "nvidia.cdi.k8s.io",
        "nvidia.cdi.k8s.io/container.a",
    ),
    *("nvidia.cdi.k8s.io/other", "example.com/a", "gpu-fraction", "gpu-memory", "pod-group-name"),
    *("hami.io/vgpu-ids-new", "4pd.io/devices-to-allocate", "x/predicate-gpu-idx-0", "gas-ts"),
    *("gpu-fraction-num-devices", "tensor-fusion.ai/disable-features", "kai.scheduler/queue"),
)
_LABELS = {
    "aliyun.com/gpu-count": ("1", "2", "3", "0", "a", ""),
    "runai-gpu-group": ("a",),
    "app": ("kai-resource-reservation", "x"),
    "ack.gpushare.placement": ("require-whole-device", "spread"),
    "hami.io/webhook": ("ignore", "x"),
    "tensor-fusion.ai/disable-features": ("gpu-limiter",),
}
_SELECTORS = (
    *(("nvidia.com/gpu.present", "true"), ("nvidia.com/gpu.present", "false"), ("zone", "a")),
    *(("cloud.google.com/gke-tpu-accelerator", "tpu-v5"), ("nvidia.com/gpu.product", "A100")),
    *(("node.kubernetes.io/instance-type", "p4d.24xlarge"), ("nvidia.com/gpu.deploy.x", "true")),
)


def random_pod(seed: int) -> dict[str, Any]:
    """The spec, annotations and labels of the pod of a seed."""
    choice = random.Random(seed)  # noqa: S311  # no secret
    volumes = [
        {"name": f"v{number}", **_volume(choice)} for number in range(choice.choice((0, 0, 1, 3)))
    ]
    spec: dict[str, Any] = {
        "volumes": volumes,
        "containers": [_container(choice, f"c{n}", volumes) for n in range(choice.choice((1, 2)))],
    }
    if choice.random() < 0.3:
        spec["initContainers"] = [_container(choice, "first", volumes)]
    if choice.random() < 0.3:
        spec["nodeSelector"] = dict([choice.choice(_SELECTORS)])
    elif choice.random() < 0.2:
        key, value = choice.choice(_SELECTORS)
        operator = choice.choice(("In", "Exists", "NotIn", "DoesNotExist"))
        values = {"values": [value]} if operator in ("In", "NotIn") else {}
        term = {"matchExpressions": [{"key": key, "operator": operator, **values}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    if choice.random() < 0.2:
        spec["runtimeClassName"] = choice.choice(("nvidia", "kata", "gvisor"))
    if choice.random() < 0.15:
        spec["nodeName"] = "node-1"
    if choice.random() < 0.15:
        spec["schedulerName"] = choice.choice(("kai-scheduler", "volcano", "hami-scheduler"))
    texts = (*_VALUES, "0.5", "1", "1.5", "0.0000000001", "2", "gpu-limiter, x")
    annotations = {key: choice.choice(texts) for key in _ANNOTATIONS if choice.random() < 0.15}
    labels = {key: choice.choice(known) for key, known in _LABELS.items() if choice.random() < 0.15}
    return {"spec": spec, "annotations": annotations, "labels": labels}


def _volume(choice: random.Random) -> dict[str, Any]:
    kind = choice.random()
    if kind < 0.15:
        return {"emptyDir": {}}
    if kind < 0.25:
        return {"persistentVolumeClaim": {"claimName": "data"}}
    return {"hostPath": {"path": choice.choice(_PATHS)}}


def _container(choice: random.Random, name: str, volumes: list[Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "image": choice.choice(_IMAGES), "env": []}
    for _ in range(choice.choice((0, 1, 2, 4))):
        entry: dict[str, Any] = {"name": choice.choice(_NAMES)}
        if choice.random() < 0.2:
            reference = {"name": "c-1", "key": entry["name"]}
            entry["valueFrom"] = choice.choice(
                (
                    {"configMapKeyRef": reference},
                    {"secretKeyRef": reference},
                    {"fieldRef": {"fieldPath": "metadata.annotations['huawei.com/Ascend910']"}},
                )
            )
        else:
            entry["value"] = choice.choice(_VALUES)
        made["env"].append(entry)
    if choice.random() < 0.3:
        kinds = ("configMapRef", "secretRef")
        made["envFrom"] = [
            {"prefix": choice.choice(_PREFIXES), choice.choice(kinds): {"name": "settings"}}
            for _ in range(2)
        ]
    if choice.random() < 0.5:
        names = choice.sample(_RESOURCES, choice.choice((1, 1, 2, 3)))
        amounts = ("0", "1", "1", "2", "7", "20", "100", "150", "16k", "4Gi", "2E", "17179869185")
        made["resources"] = {"limits": {n: choice.choice(amounts) for n in names}}
    if choice.random() < 0.2:
        added = choice.choice((["SYS_ADMIN"], ["CAP_ALL"], ["NET_ADMIN"]))
        made["securityContext"] = choice.choice(
            ({"privileged": True}, {"capabilities": {"add": added}})
        )
    mounts = [
        {"name": volume["name"], "mountPath": path, "readOnly": choice.random() < 0.3}
        for volume, path in zip(volumes, choice.sample(_MOUNTS, len(volumes)), strict=True)
        if choice.random() < 0.8
    ]
    for mount in mounts:
        if choice.random() < 0.2:
            mount["subPath"] = choice.choice(("dev", "a/./b", "nvidia0", "containerd"))
    made["volumeMounts"] = mounts
    return made
