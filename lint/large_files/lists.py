"""What Lists in YAML and in JSON have in common."""

from __future__ import annotations

from typing import Any

PART = 1 << 19
"""Characters of a part: enough that a part costs little more than its items."""
MAX_HEAD = 1 << 16
"""The most characters before the items of a List, and after them."""
OWN_LINES = 3
"""The lines above the items in each part, which no file has."""


class ListError(Exception):
    """A List that cannot be cut; the message says why."""


def check_kind(value: Any, assumed: str) -> None:
    """Raise ListError unless `value` is a List, of the kind that was `assumed` for its items."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List"):
        raise ListError(f"this object has items and its kind is {kind!r}, not List")
    if not assumed and kind != "List":
        raise ListError(f"the kind {kind} comes after the items: write it before them")
