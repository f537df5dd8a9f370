"""Which pods are device plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text

_FOLDER = "/var/lib/kubelet/device-plugins"


def is_device_plugin(spec: Mapping[str, Any]) -> bool:
    """Whether a pod with this `spec` mounts the folder in which device plugins register."""
    paths = (
        as_text(as_object(volume.get("hostPath")).get("path"))
        for _, volume in as_objects(spec.get("volumes"))
    )
    return any(path.rstrip("/") == _FOLDER for path in paths)
