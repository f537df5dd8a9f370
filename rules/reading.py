"""Reading JSON of unknown shape: what has the wrong type is as good as absent; and showing it."""

from __future__ import annotations

import json
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


def shown(value: Any, limit: int = 60) -> str:
    """`value`, which a tenant wrote, fit for a message: quoted, on one line, not too long."""
    quoted = json.dumps(value, ensure_ascii=True, default=str)
    return quoted if len(quoted) <= limit else f'{quoted[: limit - 4]}…"'
