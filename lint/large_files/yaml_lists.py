"""Cut a large List in YAML into Lists of fewer items, without reading all of it at once.

A cut is before an item, at the indentation of the first one. Where a line only looks like an item,
as in a quoted text over several lines, both parts are no YAML, and are reported as not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeyaml import Chunk, YamlError, read
from lint.large_files import lists
from lint.large_files.lists import MAX_HEAD, OWN_LINES, ListError, check_kind
from lint.large_files.text_stream import TextStream
from sources.sources import MAX_BYTES, Part, Source

_ITEMS = re.compile(r"^items:[ \t]*(?:#[^\n]*)?\r?\n", re.MULTILINE)
_FIRST = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*( *)-[ \t\r\n]")


class YamlList:
    """The List in block style that `stream` begins with; its head is small enough."""

    def __init__(self, stream: TextStream, head: str, indent: int) -> None:
        self._stream = stream
        self._head = head
        self._kind = _kind_in(head)
        width = f" {{{indent}}}"
        self._item = re.compile(rf"^{width}-(?=[ \t\r\n])", re.MULTILINE)
        inside = rf"{width}(?: |-[ \t\r\n])|[ \t]*(?:#|\r?\n)"
        self._end = re.compile(rf"^(?!{inside})(?=[^\n])", re.MULTILINE)

    @classmethod
    def begin(cls, stream: TextStream) -> YamlList | None:
        """The List; None if the document is none that can be cut. Nothing is taken then."""
        match = _ITEMS.search(stream.text, 0, MAX_HEAD)
        first = match and _FIRST.match(stream.text, match.end())
        if not match or not first:
            return None
        head = stream.text[: match.start()]
        if "\n---" in head:
            return None
        try:
            read(Chunk(head))
        except YamlError:
            return None
        found = cls(stream, head, len(first[1]))
        stream.take(match.end())
        return found

    def parts(self, name: str) -> Iterator[Source]:
        """Sources with some of the items each; raises ListError at the end if it was no List."""
        taken = 0
        while True:
            line = self._stream.line
            text, is_last = self._take_items()
            items = len(self._item.findall(text))
            prefix = f"apiVersion: v1\nkind: {self._kind or 'List'}\nitems:\n"
            part = Part(line - OWN_LINES - 1, OWN_LINES + 1, items=taken)
            if items:
                yield Source(name, prefix + text, part=part)
            taken += items
            if is_last:
                break
        self._check_tail()

    def _take_items(self) -> tuple[str, bool]:
        """The text of some items, and whether they are the last ones."""
        size = 2 * lists.PART
        while True:
            self._stream.fill(size)
            text = self._stream.text
            is_whole = self._stream.is_complete and len(text) <= size
            stop = len(text) if is_whole else text.rfind("\n", 0, size) + 1
            end = self._end.search(text, 0, stop)
            if end or is_whole:
                return self._stream.take(end.start() if end else stop), True
            *_, last = [match.start() for match in self._item.finditer(text, 0, stop)] or [0]
            if last := _before_notes(text, last):
                return self._stream.take(last), False
            if size > MAX_BYTES:
                raise ListError(f"an item larger than {MAX_BYTES >> 20} MiB")
            size *= 2

    def _check_tail(self) -> None:
        """What comes after the items must belong to the same List."""
        self._stream.fill(MAX_HEAD)
        text = self._stream.text
        end = 0 if text.startswith("---") else text.find("\n---", 0, MAX_HEAD) + 1
        if end == 0 and not text.startswith("---"):
            end = len(text)
            if not self._stream.is_complete:
                raise ListError("too much text after the items of a List")
        tail = self._stream.take(end)
        if _ITEMS.search(tail):
            raise ListError("the key 'items' is here twice")
        try:
            document = read(Chunk(self._head + tail))
        except YamlError as error:
            raise ListError(f"this is no List: {error.message}") from error
        check_kind(document.value if document else None, self._kind)


def _before_notes(text: str, start: int) -> int:
    """Where the comments and empty lines above the line at `start` begin."""
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        if text[above:start].strip() and not text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start


def _kind_in(head: str) -> str:
    document = read(Chunk(head))
    kind = document.value.get("kind") if document and isinstance(document.value, dict) else None
    return kind if isinstance(kind, str) else ""
