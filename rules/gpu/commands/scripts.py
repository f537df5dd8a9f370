"""The commands in a script, and their words.

Every function is linear in its input.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

# The words of a command: quoted texts, escaped characters, what another command prints, as in
# `$(id -u):$(id -g)`, and others, up to what ends the command.
_WORD_PATTERN = r"""[ \t]* (?: \\\r?\n [ \t]* )*
    ((?: "(?:[^"\\]|\\.){0,4096}" | '[^']{0,4096}' | \\[^\n]
       | \$\( (?: [^()\n] | \([^()\n]{0,100}\) ){0,300} \) | [^\s"'\\;|&()<>`] )+)"""
_MAX_WORDS = 200
# A word up to a quote behind a letter, and a quotation of several lines.
_CLOSING_QUOTE_PATTERN = r"""[^\s"']*[\w./](?=(?:"[^"\n]*\n|'[^'\n]*\n))"""
_QUOTE_MARK_PATTERN = r"""\\.|["']"""
_QUOTATION_PATTERN_BY_QUOTE = {'"': r'(?:[^"\\]++|\\.)*+(?=")', "'": r"[^']*+(?=')"}
# A word of a script, or the end of a line. A quotation that is never closed goes to the end.
_SCRIPT_WORD_PATTERN = r"""
    \n | (?: "(?:[^"\\]|\\.?)*+(?:"|\Z) | '[^']*(?:'|\Z) | \\.? | [^\s"'\\]++ )++"""
# A text that is one word: nothing in it quotes, escapes or separates.
_ONE_WORD_PATTERN = r"""[^\s"'\\]+"""
# Programs whose arguments are texts, or names of programs that they do not start.
_PROGRAMS_THAT_START_NONE = frozenset({"echo", "printf", "pip", "pip3", "which"})
# How far back the beginning of a line is looked for
_MAX_LINE_CHARACTERS = 1000

Span = tuple[int, int]


class ScriptWord(NamedTuple):
    """A word between blanks; `is_mention` if it may be part of a text, and start nothing."""

    text: str
    is_mention: bool


def find_commands(text: str, start: str) -> Iterator[tuple[list[str], list[Span]]]:
    """The commands in `text` that begin where the pattern `start` matches, without comments.

    Of each its words, unquoted, and where they are; at least one.
    """
    end, quotations = 0, _Quotations(text)
    for match in compiled_pattern(start).finditer(text):
        if match.start() < end or _is_comment(text, match.start()):
            continue
        spans = list(_word_spans(text, match.start(), quotations.end_around(match.start())))
        end = spans[-1][1] if spans else match.end()
        if spans:
            yield [_unquoted(text[a:b]) for a, b in spans], spans


def script_words(text: str) -> Iterable[ScriptWord]:
    """The words of a script, without quotes; those in a quotation that has blanks are mentions.

    So are those behind `echo` and its like, up to the end of the command.
    """
    if compiled_pattern(_ONE_WORD_PATTERN).fullmatch(text):  # most arguments are
        return (ScriptWord(text, is_mention=False),)
    return _script_words(text)


def _script_words(text: str) -> Iterator[ScriptWord]:
    mentions, separators = False, (";", "|", "&")
    for match in compiled_pattern(_SCRIPT_WORD_PATTERN).finditer(text.replace("\\\n", " ")):
        parts = match[0].split()
        for part in parts:
            yield ScriptWord(part.strip("\"'"), mentions or len(parts) > 1)
        name = match[0].lstrip("(;|&`$").rpartition("/")[2]
        ends = not parts or match[0].startswith(separators) or match[0].endswith(separators)
        mentions = name in _PROGRAMS_THAT_START_NONE or (mentions and not ends)


def _word_spans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the words of the command at `start`, up to `stop`."""
    for _ in range(_MAX_WORDS):
        match = compiled_pattern(_WORD_PATTERN).match(text, start, stop)
        if not match or match[1].startswith("#"):
            return
        # A quotation of several lines that begins behind a letter: there, another one ends.
        if closing := compiled_pattern(_CLOSING_QUOTE_PATTERN).match(match[1]):
            yield match.start(1), match.start(1) + closing.end()
            return
        yield match.span(1)
        start = match.end()


class _Quotations:
    """The quotations in a text that is read from its beginning to its end, in linear time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._quote = 0, ""
        self._ends: dict[str, int] = {}  # of a quotation with this quote

    def end_around(self, offset: int) -> int:
        """Return where the quotation around `offset` ends; the end of the text if there is none.

        A quotation counts if it has begun on the line of `offset`, which is never smaller than in
        the call before.
        """
        newline = self._text.rfind("\n", self._at, offset)
        if newline >= 0:
            self._at, self._quote = newline + 1, ""
        for mark in compiled_pattern(_QUOTE_MARK_PATTERN).finditer(self._text, self._at, offset):
            self._add(mark[0])
        self._at = offset
        return self._end_after(offset) if self._quote else len(self._text)

    def _add(self, mark: str) -> None:
        is_escape = mark.startswith("\\") and self._quote != "'"
        if not is_escape and mark[-1] in ("'", '"') and self._quote in ("", mark[-1]):
            self._quote = "" if self._quote else mark[-1]

    def _end_after(self, offset: int) -> int:
        if self._ends.get(self._quote, -1) < offset:
            pattern = compiled_pattern(_QUOTATION_PATTERN_BY_QUOTE[self._quote])
            found = pattern.match(self._text, offset)
            self._ends[self._quote] = found.end() if found else len(self._text)
        return self._ends[self._quote]


@cache
def compiled_pattern(text: str) -> re.Pattern[str]:
    """The pattern, compiled when it is needed: few pods and files are searched for commands."""
    return re.compile(
        text, re.DOTALL | (re.VERBOSE if text in (_WORD_PATTERN, _SCRIPT_WORD_PATTERN) else 0)
    )


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", word)


def _is_comment(text: str, offset: int) -> bool:
    """Return whether the line of `offset` has begun a comment before it."""
    start = max(0, offset - _MAX_LINE_CHARACTERS)
    line = text[max(start, text.rfind("\n", start, offset) + 1) : offset].lstrip()
    return line.startswith(("#", "//")) or " #" in line
