"""Read JSON of unknown structure, and display it in messages.

A value of the wrong type counts as absent, so rules need not check types before they read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

# A text as a JSON string, much faster than `json.dumps`.
quote = encode_basestring_ascii


def as_object(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects in the list `value` with their indices; empty if `value` is no list."""
    if not isinstance(value, list):
        return []
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """`value` if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def display(value: Any, limit: int = 60) -> str:
    """The tenant's `value` for a message: quoted, on one line, at most `limit` characters."""
    # Quoting makes a text longer, never shorter, so the rest would be cut off anyway.
    is_text = isinstance(value, str)
    quoted = quote(value[:limit]) if is_text else json.dumps(value, default=str)
    return quoted if len(quoted) <= limit else f'{quoted[: limit - 4]}…"'
