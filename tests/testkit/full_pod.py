"""A pod that sets every field that rules read."""

from __future__ import annotations

FULL_CONTAINER = {
    "name": "main",
    "image": "nvidia/cuda:12",
    "env": [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "LD_PRELOAD", "value": "/x.so"},
        {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
    ],
    "envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "x"}}],
    "resources": {
        "limits": {"nvidia.com/gpu": 1, "aliyun.com/gpu-mem": "0.5"},
        "requests": {"nvidia.com/gpu": "2", "nvidia.com/gpumem": 1},
        "claims": [{"name": "g"}],
    },
    "volumeMounts": [{"name": "d", "mountPath": "/var/run/nvidia-container-devices/all"}],
    "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
}
FULL_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
            },
            {
                "matchExpressions": [
                    {"key": "c", "operator": "NotIn", "values": ["d"]},
                    {"key": "nvidia.com/gpu.present", "operator": "Exists"},
                    {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A"]},
                ]
            },
        ]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "c", "operator": "Exists"}]}}
    ],
}
FULL_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "n",
        "annotations": {"gpu-fraction": "0.5", "cdi.k8s.io/x": "nvidia.com/gpu=all"},
        "labels": {"aliyun.com/gpu-count": "2"},
        "ownerReferences": [{"kind": "DaemonSet", "controller": True}],
    },
    "spec": {
        "initContainers": [FULL_CONTAINER],
        "containers": [FULL_CONTAINER, {"name": "side"}],
        "ephemeralContainers": [FULL_CONTAINER],
        "volumes": [
            {"name": "d", "hostPath": {"path": "/dev"}},
            {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": FULL_AFFINITY},
        "resourceClaims": [{"name": "g"}],
        "schedulerName": "x",
        "runtimeClassName": "nvidia",
        "hostIPC": True,
        "nodeName": "n",
    },
}
