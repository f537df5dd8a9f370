"""A reader of simple YAML inside a text of a manifest, such as a file in a ConfigMap.

It reads maps and lists in block style with plain or quoted scalars, as people write configurations.
Of anything else, such as anchors, flow style or several documents, nothing is known.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINES = 2000
_KEY_PATTERN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]{0,100}):(?: (.*))?")
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
    return reader.values if all(map(reader.read_line, lines)) else None


class _OpenCollection(NamedTuple):
    """A map or a list that is not closed yet: its column, and what leads to it.

    `entries` is how many a list has so far; None for a map.
    """

    column: int
    path: KeyPath
    entries: int | None = None


class _Reader:
    """Reads one line after another."""

    def __init__(self) -> None:
        self.values: list[PathAndText] = []
        self._open = [_OpenCollection(0, ())]
        # The key without a text that came last: what is in it may follow.
        self._empty: _OpenCollection | None = None

    def read_line(self, line: str) -> bool:
        """Whether the line is simple YAML."""
        content = _without_comment(line)
        if not content:
            return True
        if content == "---":
            return not self.values
        text = content.lstrip(" ")
        return self._try_read_at(len(content) - len(text), text)

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
