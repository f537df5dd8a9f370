"""The Node object of a kubelet whose pods run as processes."""

from __future__ import annotations

from typing import Any

READY = {"type": "Ready", "status": "True", "reason": "Simulated", "message": ""}
TAINT = {"key": "gpuward-tests", "value": "processes", "effect": "NoSchedule"}


def node_object(name: str, taints: list[dict[str, str]], kubelet_port: int) -> dict[str, Any]:
    """A ready Node without GPUs; API servers call its kubelet at 127.0.0.1 and `kubelet_port`."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        # The scheduler spreads pods only over nodes that have a zone.
        "topology.kubernetes.io/zone": "zone-1",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [READY],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        },
    }
