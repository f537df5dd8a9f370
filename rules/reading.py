"""Reading JSON of unknown shape: what has the wrong type is as good as absent; and showing it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

# The text as JSON, at a fraction of the cost of `json.dumps`.
quoted = encode_basestring_ascii


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
    said = quoted(value) if isinstance(value, str) else json.dumps(value, default=str)
    return said if len(said) <= limit else f'{said[: limit - 4]}…"'
