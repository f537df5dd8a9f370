"""The words of commands in the text of a script. Every function is linear in its input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

# The words of a command: quoted texts, escaped characters and others, up to what ends the command.
_WORD = r"""[ \t]* (?: \\\r?\n [ \t]* )*
    ((?: "(?:[^"\\]|\\.){0,4096}" | '[^']{0,4096}' | \\[^\n] | [^\s"'\\;|&()<>`] )+)"""
_MAX_WORDS = 200
# How far back the beginning of a line is looked for
_MAX_LINE = 1000

Span = tuple[int, int]


def find_commands(text: str, start: str) -> Iterator[tuple[list[str], list[Span]]]:
    """The commands in `text` that begin where the pattern `start` matches, without comments.

    Of each its words, unquoted, and where they are; at least one.
    """
    end = 0
    for match in _pattern(start).finditer(text):
        if match.start() < end or _is_comment(text, match.start()):
            continue
        spans = list(_words(text, match.start()))
        end = spans[-1][1] if spans else match.end()
        if spans:
            yield [_unquoted(text[a:b]) for a, b in spans], spans


def _words(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where the words of the command at `start` are."""
    for _ in range(_MAX_WORDS):
        match = _pattern(_WORD).match(text, start)
        if not match or match[1].startswith("#"):
            return
        yield match.span(1)
        start = match.end()


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """The pattern, compiled when it is needed: few pods and files are searched for commands."""
    return re.compile(text, re.DOTALL | (re.VERBOSE if text is _WORD else 0))


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", word)


def _is_comment(text: str, offset: int) -> bool:
    """Whether the line of `offset` has begun a comment before it."""
    start = max(0, offset - _MAX_LINE)
    line = text[max(start, text.rfind("\n", start, offset) + 1) : offset].lstrip()
    return line.startswith(("#", "//")) or " #" in line
