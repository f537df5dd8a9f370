"""Write a value as YAML in a random layout: styles, quotes, indentation, comments, blank lines."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from kubeyaml.scalars import resolve

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
COMMENTS = ("a comment", "- name: gone", '"quoted": {', "it's: odd", "")


class Layout:
    """One random layout; `text` writes a whole document in it.

    `flow` is how often a collection is written in brackets; `noise` how often a comment or a blank
    line stands where one may.
    """

    def __init__(self, source: random.Random, flow: float = 0.2, noise: float = 0.1) -> None:
        self._source = source
        self._last_literal_line = ""
        self._comments = 0
        self._flow = flow
        self._noise = noise
        self._step = source.choice((1, 2, 2, 2, 3, 4, 7))
        self._dash = source.choice((0, 0, 2, self._step))
        self._space = " " * source.choice((1, 1, 1, 3))
        self._quotes = source.choice(("plain", "mixed"))

    def text(self, value: dict[str, Any]) -> str:
        """`value` as a document that ends with a line break, most of the time."""
        lines = [*self._strewn(0), *self._block(value, 0), *self._strewn(0)]
        end = self._source.choice(("\n", "\n", "\n", "", "\n\n"))
        # Without it, a text of several lines at the end would not end with a line break either.
        return "\n".join(lines) + (end or "\n" * (lines[-1] == self._last_literal_line))

    def _chance(self, share: float) -> bool:
        return self._source.random() < share

    def _comment(self) -> str:
        self._comments += 1
        return f"#{self._comments}# {self._source.choice(COMMENTS)}"

    def _strewn(self, column: int) -> Iterator[str]:
        while self._chance(self._noise):
            blanks = self._source.choice((column, 0, max(column - 1, 0)))
            yield self._source.choice(("", "", " " * blanks + self._comment()))

    def _behind(self) -> str:
        return "  " + self._comment() if self._chance(self._noise) else ""

    def _block(self, value: Any, column: int) -> Iterator[str]:
        pad = " " * column
        if isinstance(value, dict):
            for key, child in value.items():
                yield from self._strewn(column)
                yield from self._entry(pad + self._scalar(key) + ":", child, column)
            return
        for child in value:
            yield from self._strewn(column)
            inner = column + 1 + len(self._space)
            if self._is_inline(child):
                yield f"{pad}-{self._space}{self._inline(child, inner)}{self._behind()}"
                continue
            if isinstance(child, str):
                yield from self._literal(f"{pad}-", child, column)
                continue
            first, *others = self._without_noise_first(child, inner)
            yield f"{pad}-{self._space}{first.lstrip(' ')}"
            yield from others

    def _without_noise_first(self, value: Any, column: int) -> list[str]:
        lines = list(self._block(value, column))
        while lines[0].lstrip(" ").startswith("#") or not lines[0].strip():
            del lines[0]
        return lines

    def _entry(self, head: str, value: Any, column: int) -> Iterator[str]:
        if value is None and self._chance(0.5):
            yield head + self._behind()
        elif self._is_inline(value):
            yield f"{head}{self._space}{self._inline(value, column + 1)}{self._behind()}"
        elif isinstance(value, str):
            yield from self._literal(head, value, column)
        else:
            yield head + self._behind()
            inner = column + (self._step if isinstance(value, dict) else self._dash)
            yield from self._block(value, inner)

    def _literal(self, head: str, value: str, column: int) -> Iterator[str]:
        yield f"{head} |" + ("" if value.endswith("\n") else "-")
        indent = " " * (column + self._step)
        for line in value.removesuffix("\n").split("\n"):
            self._last_literal_line = indent + line if line else line
            yield self._last_literal_line

    def _is_inline(self, value: Any) -> bool:
        if isinstance(value, str):
            is_text = "\n" in value.strip("\n") and value[0] not in " \n" and "\n\n" not in value
            return not (is_text and value.isascii() and self._chance(0.7))
        return not value or not isinstance(value, dict | list) or self._chance(self._flow)

    def _inline(self, value: Any, column: int = 0) -> str:
        if not isinstance(value, dict | list):
            return self._scalar(value)
        inner = column + self._step
        # Brackets may stand on several lines, each of which is indented below the key.
        is_long = bool(value) and self._chance(0.2)
        gap, end = ("\n" + " " * inner, "\n" + " " * column) if is_long else (" ", "")
        blank = gap if is_long else self._source.choice(("", "", " "))
        if isinstance(value, dict):
            entries = [f"{self._scalar(k)}: {self._inline(v, inner)}" for k, v in value.items()]
        else:
            entries = [self._inline(child, inner) for child in value]
        if entries:
            entries[-1] += self._source.choice(("", "", ","))
        comma = ","
        if is_long and self._chance(self._noise):
            comma += " " + self._comment()
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return opening + blank + (comma + gap).join(entries) + (end or blank) + closing

    def _scalar(self, value: Any) -> str:
        if not isinstance(value, str):
            return json.dumps(value)
        is_plain = _PLAIN.fullmatch(value) and resolve(value) == value
        if is_plain and (self._quotes == "plain" or self._chance(0.5)):
            return value
        if value.isprintable() and self._chance(0.5):
            return "'" + value.replace("'", "''") + "'"
        return json.dumps(value)
