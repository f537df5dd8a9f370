"""Cut a large List in JSON into Lists of fewer items, without reading all of it at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lint.large_files import lists
from lint.large_files.lists import MAX_HEAD, OWN_LINES, ListError, check_kind
from lint.large_files.text_stream import TextStream
from sources.sources import MAX_BYTES, Part, Source

_SPACE = re.compile(r"[\s,]*")
_KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
_JSON = json.JSONDecoder()


class JsonList:
    """The List that `stream` begins with, in JSON on any number of lines."""

    def __init__(self, stream: TextStream, head: dict[str, Any]) -> None:
        self._stream = stream
        self._head = head
        kind = head.get("kind")
        self._kind = kind if isinstance(kind, str) else ""

    @classmethod
    def begin(cls, stream: TextStream) -> JsonList | None:
        """The List; None if the document is none that can be cut. Nothing is taken then."""
        text = stream.text
        at = len(text) - len(text.lstrip("\ufeff \t\r\n"))
        if not text.startswith("{", at):
            return None
        head, at = _members(text, at + 1)
        if head is None or not text.startswith("[", at):
            return None
        found = cls(stream, head)
        stream.take(at + 1)
        return found

    def parts(self, name: str) -> Iterator[Source]:
        """Sources with some of the items each; raises ListError at the end if it was no List."""
        taken = 0
        while True:
            self._skip()
            lines = self._stream.line - OWN_LINES - 1
            part = Part(lines, OWN_LINES + 1, self._stream.columns, taken)
            text, items = self._take_items()
            if items:
                kind = json.dumps(self._kind or "List")
                prefix = f'{{"apiVersion": "v1",\n"kind": {kind},\n"items": [\n'
                yield Source(name, f"{prefix}{text}\n]}}", part=part)
            taken += items
            if not items:
                break
        self._check_tail()

    def _skip(self) -> None:
        """Take space and a comma."""
        while True:
            self._stream.fill(lists.PART)
            match = _SPACE.match(self._stream.text)
            self._stream.take(match.end() if match else 0)
            if self._stream.text or self._stream.is_complete:
                return

    def _take_items(self) -> tuple[str, int]:
        """Some complete items; none if the array ends here."""
        size = 2 * lists.PART
        end = items = 0
        while end < lists.PART:
            text = self._stream.text
            match = _SPACE.match(text, end)
            start = match.end() if match else end
            if text.startswith("]", start):
                break
            try:
                _, end = _JSON.raw_decode(text, start)
                items += 1
            except RecursionError:
                raise ListError("an item that is nested too deeply") from None
            except ValueError as error:
                if items:
                    break  # the next part begins with this item
                if self._stream.is_complete or size > MAX_BYTES:
                    raise ListError(f"an item that is no JSON, or too large: {error}") from error
                size *= 2
                self._stream.fill(size)
        return self._stream.take(end), items

    def _check_tail(self) -> None:
        self._stream.fill(MAX_HEAD)
        tail, at = _members(self._stream.text, 1)
        if tail is not None and ("items" in tail or self._stream.text.startswith("[", at)):
            raise ListError("the key 'items' is here twice")
        if tail is None or not self._stream.text.startswith("}", at):
            raise ListError("too much text after the items of a List, or no JSON")
        self._stream.take(at + 1)
        check_kind({**self._head, **tail}, self._kind)


def _members(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """The members of a JSON object from `at` to its end or to its array `items`, and where that is.

    None in place of the members if they cannot be read.
    """
    members: dict[str, Any] = {}
    while match := _KEY.match(text, at):
        at = match.end()
        try:
            key = json.loads(match[1])
            if key == "items" and text.startswith("[", at):
                return members, at
            members[key], at = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None, at
    space = _SPACE.match(text, at)
    return members, space.end() if space else at
