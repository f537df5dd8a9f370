"""Reading JSON of unknown shape: what has the wrong type is as good as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects in the list `value` with their indices; nothing if it is no list."""
    if not isinstance(value, list):
        return []
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)]


def text(value: Any) -> str:
    """`value` if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""
