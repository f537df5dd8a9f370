"""The overrides of `kubectl run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text
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
    except (ValueError, RecursionError):  # no JSON, no such place, or far too deep
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
    """`value` with the operations of RFC 6902 that add and replace; others change nothing.

    Raises ValueError for a place that cannot be.
    """
    for _, operation in as_objects(patch):
        name = operation.get("op")
        if name in ("add", "replace"):
            written = as_text(operation.get("path")).split("/")[1:]
            steps = [step.replace("~1", "/").replace("~0", "~") for step in written]
            value = _with_value(value, steps, operation.get("value"), inserts=name == "add")
    return value


def _with_value(value: Any, steps: Sequence[str], new: Any, *, inserts: bool) -> Any:
    """A copy of `value` with `new` at `steps`, which may be in fields that kubectl adds by itself.

    In a list it `inserts` the value, or replaces an item. Raises ValueError for a place that
    cannot be.
    """
    if not steps:
        return new
    step, others = steps[0], steps[1:]
    if value is not None and not isinstance(value, dict | list):
        raise ValueError(step)
    if isinstance(value, dict) or (value is None and step != "-"):
        made = as_object(value)
        return {**made, step: _with_value(made.get(step), others, new, inserts=inserts)}
    items = value or []
    index = len(items) if step == "-" else int(step)
    is_new = inserts and not others
    if not 0 <= index < len(items) + is_new:
        raise ValueError(step)
    own = new if is_new else _with_value(items[index], others, new, inserts=inserts)
    return [*items[:index], own, *items[index + (not is_new) :]]
