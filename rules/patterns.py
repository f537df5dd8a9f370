"""Patterns in which `*` stands for any characters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

# Texts come from tenants: what is remembered of them must stay bounded, and so must its length.
_TEXTS, _LONGEST = 4096, 128


def matches(pattern: str, text: str) -> bool:
    """Whether `text` fits `pattern`, in which each `*` stands for any characters.

    Linear in both lengths, because patterns meet text that tenants wrote.
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
    """Whether `text` fits one of `patterns`."""
    if type(patterns) is tuple and len(text) <= _LONGEST:
        return _remembered(patterns, text)
    return any(matches(pattern, text) for pattern in patterns)


@lru_cache(maxsize=_TEXTS)
def _remembered(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)
