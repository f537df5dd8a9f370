"""The environment variables that the manifest of a pod sets in a container."""

from __future__ import annotations

from typing import Any


def pod_variables(pod: Any, container: Any) -> dict[str, str]:
    """The variables of `container` by their names, with fields of `pod` filled in."""
    return {entry["name"]: _value(pod, entry) for entry in container.get("env", [])}


def _value(pod: Any, entry: Any) -> str:
    if "value" in entry:
        return str(entry["value"])
    value = pod
    for step in entry["valueFrom"]["fieldRef"]["fieldPath"].split("."):
        value = value[step]
    return str(value)
