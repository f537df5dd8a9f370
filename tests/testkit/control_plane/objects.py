"""The Kubernetes objects that the methods of `Cluster` create."""

from __future__ import annotations

from typing import Any


def namespace(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def service_account(name: str) -> dict[str, Any]:
    """A ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def service(name: str, address: str, port: int) -> dict[str, Any]:
    """A Service at a fixed address, with no selector."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": address, "ports": [{"port": port}]},
    }


def token_request() -> dict[str, Any]:
    """A request for a token of a service account."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }


def gpu_node(
    name: str, resource: str, gpus: int, labels: dict[str, str], *, taint: bool
) -> dict[str, Any]:
    """A Node that kwok simulates, with GPUs as a device plugin reports them."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", resource: str(gpus)}
    taints = [{"key": resource, "value": "present", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, **labels},
        },
        "spec": {"taints": taints if taint else []},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
