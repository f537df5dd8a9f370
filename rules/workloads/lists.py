"""Open lists of objects, as kubectl does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_objects, as_text
from rules.base.json_values import Path


def flatten_lists(raw: Mapping[str, Any], path: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The object `raw` and, if it has items, the objects in them, each with its path.

    kubectl takes everything with `items` for a list, whatever its kind.
    """
    waiting = [(raw, path)]
    while waiting:
        raw, path = waiting.pop()
        listed = raw.get("items")
        if not isinstance(listed, list):
            yield raw, path
            continue
        kind = as_text(raw.get("kind"))
        if not kind.endswith("List"):
            yield raw, path
        # Items of a PodList need not say that they are Pods.
        inherited = {"apiVersion": raw.get("apiVersion"), "kind": kind.removesuffix("List")}
        for index, item in reversed(as_objects(listed)):
            typed = item if as_text(item.get("kind")) else {**item, **inherited}
            waiting.append((typed, (*path, "items", index)))
