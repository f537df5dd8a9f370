"""The input and output of a patch of YAML text."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from kubeyaml.model import Document, Json, Path

Operation = dict[str, Any]
"""One operation of a JSON Patch (RFC 6902): add, remove, replace, or move within a mapping."""


class PatchError(Exception):
    """An operation that cannot be made without touching what it must not touch.

    `reason` completes "not fixed: …". `path` is that of the operation, in the document as the
    operations before it left it; it is empty if the result as a whole is wrong.
    """

    def __init__(self, reason: str, path: Path = ()) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return self.reason


class Splice(NamedTuple):
    """Put `text` in the place of what is between two offsets."""

    start: int
    end: int
    text: str = ""


class PatchedText(NamedTuple):
    """The text of a document after a patch, and what is read from it."""

    text: str
    document: Document


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


def are_identical(one: Json, other: Json) -> bool:
    """Return whether two values are the same JSON.

    1, 1.0 and true differ; the order of keys does not matter.
    """
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
