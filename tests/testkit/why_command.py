"""Nodes and pods, and a way to ask `gpuward why` about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.why.cli import main

GPU = "nvidia.com/gpu"
CAN, CANNOT, WRONG_USAGE, NOT_KNOWN = range(4)


def node(
    name: str,
    gpus: int = 8,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    capacity: int | None = None,
    shared: int = 0,
) -> dict[str, Any]:
    """A node with GPUs, or with four cards that share `shared` GiB of `aliyun.com/gpu-mem`."""
    amounts = {"aliyun.com/gpu-mem": shared, "aliyun.com/gpu-count": 4} if shared else {}
    own = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    devices = {GPU: gpus, **amounts}
    offered = {key: str(value) for key, value in devices.items() if value}
    most = offered if capacity is None else {GPU: str(capacity)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "status": {"capacity": {**own, **most}, "allocatable": {**own, **offered}},
    }


def pod(
    name: str = "p",
    limits: dict[str, Any] | None = None,
    *,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": limits or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": name, **(metadata or {})},
        "spec": {"containers": [container], **spec},
        "status": status or {"phase": "Pending"},
    }


class Asked:
    """Writes objects to files and asks about them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def __call__(self, *objects: Any, manifest: Any = None, name: str = "") -> tuple[int, str]:
        """The exit status and what is printed, of the pod `name`, the manifest, or all pods."""
        cluster, new = self._folder / "cluster.json", self._folder / "new.json"
        cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        arguments = [name] if name else []
        if manifest is not None:
            new.write_text(json.dumps(manifest))
            arguments = ["--manifest", str(new)]
        status = main([*arguments, "-f", str(cluster)])
        return status, " ".join(self._capsys.readouterr().out.split())
