"""Nodes and pods with GPUs, as an API server lists them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def node(
    name: str,
    amounts: dict[str, Any] | None = None,
    *,
    capacity: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    cpu: str = "64",
) -> Object:
    """A ready Node; `amounts` are added to its allocatable CPU, memory and pods."""
    allocatable = {"cpu": cpu, "memory": "256Gi", "pods": "110", **(amounts or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": spec or {},
        "status": {
            "allocatable": allocatable,
            "capacity": {**allocatable, **(capacity or {})},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str,
    limits: dict[str, Any] | None = None,
    *,
    on: str = "",
    namespace: str = "team-a",
    phase: str = "Running",
    owner: tuple[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Pod whose only container has `limits`; `on` is its node, `spec` are further fields."""
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": annotations or {},
            "labels": labels or {},
            "ownerReferences": owners,
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": limits or {}}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": phase},
    }


def listed(*objects: Object) -> Object:
    """Return what `kubectl get -o json` prints."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}
