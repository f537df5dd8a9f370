"""A reader of simple YAML inside a text of a manifest, such as a file in a ConfigMap.

It reads maps and lists in block style with plain or quoted scalars, as people write configurations,
and the texts of several lines that begin with `|`. Of anything else, such as anchors, flow style or
several documents, nothing is known.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINES = 2000
_KEY_PATTERN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]{0,100}):(?: (.*))?")
_LITERAL_PATTERN = re.compile(r"\|[+-]?")
_UNSUPPORTED_STARTS = ("{", "[", "&", "*", "|", ">", "!", "?", "%", "@", "`")

KeyPath = tuple[str | int, ...]


class PathAndText(NamedTuple):
    """A value: the keys that lead to it, with the indices of lists, and its text.

    The text of a map or a list is empty.
    """

    path: KeyPath
    text: str


def read_block_yaml(text: str) -> list[PathAndText] | None:
    """The values in the order of the text; None if the text is anything but simple YAML."""
    lines = text.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        return None
    reader = _Reader()
    if not all(map(reader.read_line, lines)):
        return None
    reader.end_literal()
    return reader.values


class _OpenCollection(NamedTuple):
    """A map or a list that is not closed yet: its column, and what leads to it.

    `entries` is how many a list has so far; None for a map.
    """

    column: int
    path: KeyPath
    entries: int | None = None


class _Literal:
    """The text of several lines at `path`, below a key in `column`, as far as it has been read."""

    def __init__(self, column: int, path: KeyPath) -> None:
        self._column = column
        self._indent = 0
        self.path = path
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """The text, with one line break at its end unless it is empty."""
        text = "\n".join(self._lines).rstrip("\n")
        return f"{text}\n" if text else ""

    def takes(self, line: str) -> bool:
        """Return whether the line is a part of the text."""
        line = line.rstrip("\r")
        content = line.lstrip(" ")
        depth = len(line) - len(content)
        if content and depth <= (self._indent - 1 if self._indent else self._column):
            return False
        if content and not self._indent:
            self._indent = depth
        self._lines.append(line[self._indent :] if content else "")
        return True


class _Reader:
    """Reads one line after another."""

    def __init__(self) -> None:
        self.values: list[PathAndText] = []
        self._open = [_OpenCollection(0, ())]
        # The key without a text that came last: what is in it may follow.
        self._empty: _OpenCollection | None = None
        self._literal: _Literal | None = None

    def read_line(self, line: str) -> bool:
        """Return whether the line is simple YAML."""
        if self._literal is not None and self._literal.takes(line):
            return True
        self.end_literal()
        content = _without_comment(line)
        if not content:
            return True
        if content == "---":
            return not self.values
        text = content.lstrip(" ")
        return self._try_read_at(len(content) - len(text), text)

    def end_literal(self) -> None:
        """Add the text of several lines that has been read, if there is one."""
        if self._literal is not None:
            self.values.append(PathAndText(self._literal.path, self._literal.text))
            self._literal = None

    def _try_read_at(self, column: int, text: str) -> bool:
        while self._open[-1].column > column:
            self._open.pop()
        if not text.startswith("- "):
            return self._try_read_key(column, text)
        top = self._open[-1]
        if top.entries is not None and top.column == column:
            entry = top._replace(entries=top.entries + 1)
            self._open[-1] = entry
        elif self._empty and column >= self._empty.column and top.column == self._empty.column:
            entry = _OpenCollection(column, self._empty.path, 1)
            self._open.append(entry)
        else:
            return False
        rest = text[2:].lstrip(" ")
        path = (*entry.path, (entry.entries or 1) - 1)
        self._empty = None
        if _KEY_PATTERN.fullmatch(rest) is None:
            return self._try_add(path, rest)
        inner = column + len(text) - len(rest)
        self._open.append(_OpenCollection(inner, path))
        return self._try_read_key(inner, rest)

    def _try_read_key(self, column: int, text: str) -> bool:
        while self._open[-1].entries is not None:
            self._open.pop()
        matched = _KEY_PATTERN.fullmatch(text)
        top = self._open[-1]
        if matched is None:
            return False
        if top.column != column:
            if not (self._empty and column > self._empty.column == top.column):
                return False
            top = _OpenCollection(column, self._empty.path)
            self._open.append(top)
        path, value = (*top.path, matched[1]), (matched[2] or "").strip(" ")
        if _LITERAL_PATTERN.fullmatch(value):
            self._empty, self._literal = None, _Literal(column, path)
            return True
        self._empty = None if value else _OpenCollection(column, path)
        return self._try_add(path, value)

    def _try_add(self, path: KeyPath, text: str) -> bool:
        if text.startswith(_UNSUPPORTED_STARTS):
            return False
        self.values.append(PathAndText(path, _unquoted(text)))
        return True


def _without_comment(line: str) -> str:
    head, _, _ = line.partition(" #")
    return "" if head.lstrip(" ").startswith("#") else head.rstrip(" \r")


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text
