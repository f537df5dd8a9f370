"""The overrides of `kubectl run`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeyaml.patch.model import path_of
from rules.base.json_values import Path, as_object, as_objects, as_text
from rules.workloads.strategic_merge import strategic_merge


def with_overrides(pod: dict[str, Any], text: str, kind: str) -> dict[str, Any]:
    """Return the pod with the overrides in `text`, which is JSON.

    `kind` is that of `--override-type`. The pod itself is returned for what kubectl refuses.
    """
    apply = {"strategic": _apply_strategic_patch, "json": _apply_json_patch}.get(
        kind, _apply_merge_patch
    )
    try:
        made = apply(pod, json.loads(text))
    except (ValueError, TypeError, RecursionError):  # no JSON, no such place, or far too deep
        return pod
    return dict(made) if isinstance(made, Mapping) else pod


def _apply_merge_patch(value: Any, patch: Any) -> Any:
    """`value` with the JSON merge patch (RFC 7386), which kubectl applies by default."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        merged[name] = _apply_merge_patch(merged.get(name), inner)
    return {name: inner for name, inner in merged.items() if inner is not None}


def _apply_strategic_patch(value: Any, patch: Any) -> Any:
    return _apply_merge_patch(None, strategic_merge(value, patch))  # which leaves out what is null


def _apply_json_patch(value: Any, patch: Any) -> Any:
    """`value` with the operations of RFC 6902 that add and replace; others change nothing."""
    for _, operation in as_objects(patch):
        if operation.get("op") in ("add", "replace"):
            path = path_of(as_text(operation.get("path")), value)
            value = _with_value(value, path, operation.get("value"))
    return value


def _with_value(value: Any, path: Path, new: Any) -> Any:
    """A copy of `value` with `new` at `path`."""
    if not path:
        return new
    step, others = path[0], tuple(path[1:])
    if isinstance(value, list) and isinstance(step, int):
        own = value[step] if step < len(value) else {}
        return [*value[:step], _with_value(own, others, new), *value[step + 1 :]]
    made = as_object(value)
    return {**made, step: _with_value(made.get(str(step)), others, new)}
