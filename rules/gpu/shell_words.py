"""The words of commands in the text of a script. Every function is linear in its input."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

# The words of a command: quoted texts, escaped characters and others, up to what ends the command.
_WORD = r"""[ \t]* (?: \\\r?\n [ \t]* )*
    ((?: "(?:[^"\\]|\\.){0,4096}" | '[^']{0,4096}' | \\[^\n] | [^\s"'\\;|&()<>`] )+)"""
_MAX_WORDS = 200
# A word of a script, or the end of a line. A quotation that is never closed goes to the end.
_SCRIPT_WORD = r"""
    \n | (?: "(?:[^"\\]|\\.?)*+(?:"|\Z) | '[^']*(?:'|\Z) | \\.? | [^\s"'\\]++ )++"""
# A text that is one word: nothing in it quotes, escapes or separates.
_ONE_WORD = r"""[^\s"'\\]+"""
# Programs whose arguments are texts, or names of programs that they do not start.
_MENTIONING = frozenset({"echo", "printf", "pip", "pip3", "which"})
# How far back the beginning of a line is looked for
_MAX_LINE = 1000

Span = tuple[int, int]


class ScriptWord(NamedTuple):
    """A word between blanks; `is_mention` if it may be part of a text, and start nothing."""

    text: str
    is_mention: bool


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


def script_words(text: str) -> Iterable[ScriptWord]:
    """The words of a script, without quotes; those in a quotation that has blanks are mentions.

    So are those behind `echo` and its like, up to the end of the command.
    """
    if _pattern(_ONE_WORD).fullmatch(text):  # most arguments are
        return (ScriptWord(text, is_mention=False),)
    return _script_words(text)


def _script_words(text: str) -> Iterator[ScriptWord]:
    mentions, separators = False, (";", "|", "&")
    for match in _pattern(_SCRIPT_WORD).finditer(text.replace("\\\n", " ")):
        parts = match[0].split()
        for part in parts:
            yield ScriptWord(part.strip("\"'"), mentions or len(parts) > 1)
        name = match[0].lstrip("(;|&`$").rpartition("/")[2]
        ends = not parts or match[0].startswith(separators) or match[0].endswith(separators)
        mentions = name in _MENTIONING or (mentions and not ends)


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
    return re.compile(text, re.DOTALL | (re.VERBOSE if text in (_WORD, _SCRIPT_WORD) else 0))


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", word)


def _is_comment(text: str, offset: int) -> bool:
    """Whether the line of `offset` has begun a comment before it."""
    start = max(0, offset - _MAX_LINE)
    line = text[max(start, text.rfind("\n", start, offset) + 1) : offset].lstrip()
    return line.startswith(("#", "//")) or " #" in line
