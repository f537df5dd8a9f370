"""The words of a Dockerfile: where they are, and what a build makes of quotes and references.

Source: https://docs.docker.com/reference/dockerfile/#environment-replacement. Tests hold it against
BuildKit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

MAX_VALUE_CHARACTERS = 4_097
_MAX_DEPTH = 20  # of references in references
_NAME_PATTERN = re.compile(r"\d+|[@*#?$!-]|\w+")


class Word(NamedTuple):
    """A word as it is written, and its place in the text."""

    text: str
    start: int
    end: int


def words_of(text: str, escape: str, start: int = 0) -> Iterator[Word]:
    """The words of `text` from `start` on; spaces in quotes, or behind `escape`, are parts of them.

    `escape` is the character of the Dockerfile that takes its meaning from the next.
    """
    for match in _word_pattern(escape).finditer(text, start):
        yield Word(match[0], match.start(), match.end())


@lru_cache(maxsize=2)
def _word_pattern(escape: str) -> re.Pattern[str]:
    e = re.escape(escape)
    quoted = rf"\"(?:{e}.|[^\"{e}])*(?:\"|{e}?\Z)|'[^']*(?:'|\Z)"
    return re.compile(rf"(?:[^\s\"'{e}]+|{quoted}|{e}(?:.|\Z))+", re.DOTALL)


class Variables:
    """The variables that references in a Dockerfile name.

    - `values`: by name; None is a value that is not known.
    - `undecided`: those that have a value only if the build is given one.
    """

    def __init__(self, values: Mapping[str, str | None] | None = None) -> None:
        self.values = dict(values or {})
        self.undecided: set[str] = set()

    def __getitem__(self, name: str) -> str | None:
        """The value of a variable, empty if it has none; None if it is not known."""
        return self.values.get(name, None if name in self.undecided else "")


def expand(text: str, variables: Variables, escape: str) -> str | None:
    """Return `text` without its quotes, and with values in place of references to variables.

    Returns None for what depends on a value that is not known, what no build accepts, and the
    operators `#`, `%` and `/`, which cut and replace. An operator such as `:-` takes a variable
    that is undecided for one without a value. A result is cut after MAX_VALUE_CHARACTERS.
    """
    try:
        return _Expansion(text, variables, escape).result()
    except _NotKnownError:
        return None


class _NotKnownError(Exception):
    """A text that is not understood, or that no build accepts."""


class _Expansion:
    """One text, read once from the left to the right."""

    def __init__(self, text: str, variables: Variables, escape: str) -> None:
        self._text = text
        self._variables = variables
        self._escape = escape
        self._at = 0
        self._plain = _plain_pattern(escape)
        self._plain_in_quotes = _plain_pattern_in_quotes(escape)

    def result(self) -> str | None:
        return self._read("", 0)

    def _read(self, stop: str, depth: int) -> str | None:
        """Read up to `stop`, or to the end if it is empty; None if a part is not known."""
        if depth > _MAX_DEPTH:
            raise _NotKnownError
        parts = _Parts()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == stop:
                self._at += 1
                return parts.joined()
            if match := self._plain.match(self._text, self._at):
                parts.add(match[0])
                self._at = match.end()
            elif char == "'":
                parts.add(self._single_quoted())
            elif char == '"':
                self._add_double_quoted(parts, depth)
            elif char == "$":
                parts.add(self._reference(depth))
            elif char == self._escape:
                parts.add(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            else:  # a brace that ends no reference
                parts.add(char)
                self._at += 1
        if stop:
            raise _NotKnownError
        return parts.joined()

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise _NotKnownError
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return inner

    def _add_double_quoted(self, parts: _Parts, depth: int) -> None:
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return
            if match := self._plain_in_quotes.match(self._text, self._at):
                parts.add(match[0])
                self._at = match.end()
            elif char == "$":
                parts.add(self._reference(depth))
            else:  # the escape is a character like others, but before these
                following = self._text[self._at + 1 : self._at + 2]
                is_escaped = following in ('"', "$", self._escape)
                parts.add(following if is_escaped else char * bool(following))
                self._at += 2 if is_escaped else 1
        raise _NotKnownError

    def _reference(self, depth: int) -> str | None:
        """Read `$name` or `${name…}`; None if its value is not known."""
        self._at += 1
        is_in_braces = self._text.startswith("{", self._at)
        self._at += is_in_braces
        match = _NAME_PATTERN.match(self._text, self._at)
        self._at = match.end() if match else self._at
        if not is_in_braces:
            return self._variables[match[0]] if match else "$"
        if not match:
            raise _NotKnownError
        if self._text.startswith("}", self._at):
            self._at += 1
            return self._variables[match[0]]
        return self._with_operator(match[0], depth)

    def _with_operator(self, name: str, depth: int) -> str | None:
        """Read the rest of `${name-other}`."""
        if is_empty_too := self._text.startswith(":", self._at):
            self._at += 1
        operator = self._text[self._at : self._at + 1]
        if operator not in ("-", "+", "?"):
            raise _NotKnownError
        self._at += 1
        other = self._read("}", depth + 1)
        value = self._variables.values.get(name, "")
        if value is None and is_empty_too:
            return None
        is_unset = not value if is_empty_too else name not in self._variables.values
        if operator == "+":
            return "" if is_unset else other
        if operator == "?" and is_unset:
            raise _NotKnownError
        return other if is_unset else value


class _Parts:
    """The parts of a result, as many as count."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0
        self._is_known = True

    def add(self, text: str | None) -> None:
        if text is None:
            self._is_known = False
        elif self._length < MAX_VALUE_CHARACTERS:
            self._texts.append(text)
            self._length += len(text)

    def joined(self) -> str | None:
        return "".join(self._texts)[:MAX_VALUE_CHARACTERS] if self._is_known else None


@lru_cache(maxsize=2)
def _plain_pattern(escape: str) -> re.Pattern[str]:
    return re.compile(rf"[^'\"$}}{re.escape(escape)}]+")


@lru_cache(maxsize=2)
def _plain_pattern_in_quotes(escape: str) -> re.Pattern[str]:
    return re.compile(rf"[^\"${re.escape(escape)}]+")
