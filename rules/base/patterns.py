"""Patterns in which `*` stands for any characters, and texts with placeholders in them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rules.base.caching import MAX_ENTRIES, MAX_KEY_LENGTH


def matches(pattern: str, text: str) -> bool:
    """Whether `text` matches `pattern`, in which each `*` stands for any characters.

    Takes time linear in both lengths, because tenants write the texts.
    """
    if "*" not in pattern:
        return text == pattern
    first, *middle, last = pattern.split("*")
    if not text.startswith(first) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
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
    """Whether a template has yet to fill in part of `value`, such as `${POOL}` or `{{ .pool }}`."""
    return "$" in value or "{{" in value
