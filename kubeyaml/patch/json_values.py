"""Paths in JSON values, and whether two values are the same."""

import json
from collections.abc import Sequence
from typing import Any

from kubeyaml.model import Json, Path


def path_of(pointer: str, document: Json) -> Path:
    """The steps of a JSON Pointer in `document`; `-` is the index behind the last item."""
    node: Any = document
    path: list[str | int] = []
    for part in pointer.split("/")[1:]:
        step: str | int = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            step = len(node) if step == "-" else int(step)
        path.append(step)
        is_there = step in node if isinstance(node, dict) else step < len(node)  # type: ignore[operator]
        node = node[step] if is_there else None
    return tuple(path)


def value_at(document: Json, path: Sequence[str | int]) -> Any:
    """The value at `path`, which must exist."""
    node: Any = document
    for step in path:
        node = node[step]
    return node


def identical(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON; 1, 1.0 and true differ, the order of keys does not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
