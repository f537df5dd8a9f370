"""Patterns in which `*` matches any characters, and texts that contain placeholders."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rules.base.caching import MAX_ENTRIES, MAX_KEY_LENGTH


def matches(pattern: str, text: str) -> bool:
    """Whether `text` matches `pattern`, in which each `*` matches any characters, or none.

    Takes time linear in both lengths, because tenants write the texts.
    """
    if "*" not in pattern:
        return text == pattern
    first, *middle, last = pattern.split("*")
    if not text.startswith(first) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        start = text.find(piece, position, end)
        if start < 0:
            return False
        position = start + len(piece)
    return text.endswith(last)


def matches_any(patterns: Iterable[str], text: str) -> bool:
    """Whether `text` matches one of `patterns`."""
    if type(patterns) is tuple and len(text) <= MAX_KEY_LENGTH:
        return _matches_any_cached(patterns, text)
    return any(matches(pattern, text) for pattern in patterns)


@lru_cache(maxsize=MAX_ENTRIES)
def _matches_any_cached(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)


def has_placeholder(value: str) -> bool:
    """Whether `value` contains a template placeholder, such as `${POOL}` or `{{ .pool }}`."""
    return "$" in value or "{{" in value
