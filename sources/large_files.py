"""Read large files in parts: documents, and the items of a List, in flat memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubeyaml import Chunk, YamlError, read
from sources.sources import (
    LARGE_BYTES,
    MAX_BYTES,
    Input,
    InputFile,
    Source,
    SourcePart,
    StandardInput,
    UnreadableSource,
    may_be_large,
)
from terminal import reason_of

_BLOCK_BYTES = 1 << 20


class TooLargeError(Exception):
    """The stream has more bytes than may be read."""


class TextStream:
    """UTF-8 text from `read`, which returns up to so many bytes.

    `text` is what has been read and not yet taken. It begins at the line `line` of the stream,
    behind `columns` characters of that line. `fill` raises UnicodeDecodeError for other text, and
    TooLargeError when more than `limit` bytes have been read.
    """

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self.text = ""
        self.line = 1
        self.columns = 0
        self.is_complete = False
        self._read = read
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._left = limit

    def fill(self, size: int) -> None:
        """Read until `text` has `size` characters, or to the end."""
        blocks = [self.text]
        length = len(self.text)
        while length < size and not self.is_complete:
            content = self._read(_BLOCK_BYTES)
            self._left -= len(content)
            if self._left < 0:
                raise TooLargeError
            self.is_complete = not content
            blocks.append(self._decode(content, final=self.is_complete))
            length += len(blocks[-1])
        self.text = "".join(blocks)

    def take(self, length: int) -> str:
        """Remove the first `length` characters of `text`, and return them."""
        taken, self.text = self.text[:length], self.text[length:]
        last = taken.rfind("\n")
        self.line += taken.count("\n")
        self.columns = len(taken) - last - 1 if last >= 0 else self.columns + len(taken)
        return taken


PART_CHARACTERS = 1 << 19
"""Characters of a part: enough that a part costs little more than its items."""
MAX_HEAD_CHARACTERS = 1 << 16
"""The most characters before the items of a List, and after them."""
ADDED_LINES = 3
"""The lines above the items in each part, which no file has."""


class ListError(Exception):
    """A List that cannot be cut; the message says why."""


def check_kind(value: Any, assumed: str) -> None:
    """Raise ListError unless `value` is a List, of the kind that was `assumed` for its items."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List"):
        raise ListError(f"this object has items and its kind is {kind!r}, not List")
    if not assumed and kind != "List":
        raise ListError(f"the kind {kind} comes after the items: write it before them")


_SPACE_PATTERN = re.compile(r"[ \t\r\n]*")
_KEY_PATTERN = re.compile(r'("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*')
_JSON_DECODER = json.JSONDecoder()


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
        head, at = _json_members(text, at + 1, is_first=True)
        if head is None or not text.startswith("[", at):
            return None
        found = cls(stream, head)
        stream.take(at + 1)
        return found

    def parts(self, name: str, *, with_values: bool) -> Iterator[Source]:
        """Sources with some of the items each; raises ListError at the end if it was no List."""
        taken = 0
        while True:
            self._skip(is_first=not taken)
            lines = self._stream.line - ADDED_LINES - 1
            part = SourcePart(lines, ADDED_LINES + 1, self._stream.columns, taken)
            text, items = self._take_items()
            if items:
                kind = self._kind or "List"
                prefix = f'{{"apiVersion": "v1",\n"kind": {json.dumps(kind)},\n"items": [\n'
                value = {"apiVersion": "v1", "kind": kind, "items": items} if with_values else None
                yield Source(name, f"{prefix}{text}\n]}}", part=part, value=value)
            taken += len(items)
            if not items:
                break
        self._check_tail()

    def _skip(self, *, is_first: bool) -> None:
        """Take what is before the next item, or before the end of the array."""
        self._skip_space()
        if is_first or self._stream.text.startswith("]"):
            return
        if not self._stream.text.startswith(","):
            raise ListError("no comma after an item")
        self._stream.take(1)
        self._skip_space()
        if self._stream.text.startswith("]"):
            raise ListError("a comma after the last item")

    def _skip_space(self) -> None:
        while True:
            self._stream.fill(PART_CHARACTERS)
            self._stream.take(_end_of_space(self._stream.text, 0))
            if self._stream.text or self._stream.is_complete:
                return

    def _take_items(self) -> tuple[str, list[Any]]:
        """Some complete items, as text and decoded; none if the array ends here."""
        size = 2 * PART_CHARACTERS
        end = 0
        items: list[Any] = []
        while end < PART_CHARACTERS:
            text = self._stream.text
            start = _end_of_space(text, end)
            if items:
                if not text.startswith(",", start):
                    break  # the next part begins with what is here instead
                start = _end_of_space(text, start + 1)
            if text.startswith("]", start):
                break
            try:
                item, end = _JSON_DECODER.raw_decode(text, start)
                items.append(item)
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
        self._stream.fill(MAX_HEAD_CHARACTERS)
        tail, at = _json_members(self._stream.text, 1, is_first=False)
        if tail is not None and ("items" in tail or self._stream.text.startswith("[", at)):
            raise ListError("the key 'items' is here twice")
        if tail is None or not self._stream.text.startswith("}", at):
            raise ListError("too much text after the items of a List, or no JSON")
        self._stream.take(at + 1)
        check_kind({**self._head, **tail}, self._kind)


def _json_members(text: str, at: int, *, is_first: bool) -> tuple[dict[str, Any] | None, int]:
    """The members of a JSON object from `at` to its end or to its array `items`, and where that is.

    There must be a comma before each member, but before the first. None in place of the members if
    they cannot be read.
    """
    members: dict[str, Any] = {}
    while True:
        at = _end_of_space(text, at)
        has_comma = not is_first and text.startswith(",", at)
        if not (is_first or has_comma):
            return members, at
        at = _end_of_space(text, at + 1) if has_comma else at
        match = _KEY_PATTERN.match(text, at)
        if not match:
            return None if has_comma else members, at
        at, is_first = match.end(), False
        try:
            key = json.loads(match[1])
            if key == "items" and text.startswith("[", at):
                return members, at
            members[key], at = _JSON_DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None, at


def _end_of_space(text: str, at: int) -> int:
    match = _SPACE_PATTERN.match(text, at)
    return match.end() if match else at


# Cut a large List in YAML into Lists of fewer items, without reading all of it at once.
#
# A cut is before an item, at the indentation of the first one. Where a line only looks like an
# item, as in a quoted text over several lines, both parts are no YAML, and are reported as not
# evaluated.

_ITEMS_PATTERN = re.compile(r"^items:[ \t]*(?:#[^\n]*)?\r?\n", re.MULTILINE)
_FIRST_ITEM_PATTERN = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*( *)-[ \t\r\n]")


class YamlList:
    """The List in block style that `stream` begins with; its head is small enough."""

    def __init__(self, stream: TextStream, head: str, indent: int) -> None:
        self._stream = stream
        self._head = head
        self._kind = _kind_in_head(head)
        width = f" {{{indent}}}"
        self._item = re.compile(rf"^{width}-(?=[ \t\r\n])", re.MULTILINE)
        inside = rf"{width}(?: |-[ \t\r\n])|[ \t]*(?:#|\r?\n)"
        self._end = re.compile(rf"^(?!{inside})(?=[^\n])", re.MULTILINE)

    @classmethod
    def begin(cls, stream: TextStream) -> YamlList | None:
        """The List; None if the document is none that can be cut. Nothing is taken then."""
        match = _ITEMS_PATTERN.search(stream.text, 0, MAX_HEAD_CHARACTERS)
        first = match and _FIRST_ITEM_PATTERN.match(stream.text, match.end())
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
            part = SourcePart(line - ADDED_LINES - 1, ADDED_LINES + 1, item_offset=taken)
            if items:
                yield Source(name, prefix + text, part=part)
            taken += items
            if is_last:
                break
        self._check_tail()

    def _take_items(self) -> tuple[str, bool]:
        """The text of some items, and whether they are the last ones."""
        size = 2 * PART_CHARACTERS
        while True:
            self._stream.fill(size)
            text = self._stream.text
            is_whole = self._stream.is_complete and len(text) <= size
            stop = len(text) if is_whole else text.rfind("\n", 0, size) + 1
            end = self._end.search(text, 0, stop)
            if end or is_whole:
                return self._stream.take(end.start() if end else stop), True
            *_, last = [match.start() for match in self._item.finditer(text, 0, stop)] or [0]
            if last := _start_of_comments_above(text, last):
                return self._stream.take(last), False
            if size > MAX_BYTES:
                raise ListError(f"an item larger than {MAX_BYTES >> 20} MiB")
            size *= 2

    def _check_tail(self) -> None:
        """Raise ListError if what comes after the items does not belong to the same List."""
        self._stream.fill(MAX_HEAD_CHARACTERS)
        text = self._stream.text
        end = 0 if text.startswith("---") else text.find("\n---", 0, MAX_HEAD_CHARACTERS) + 1
        if end == 0 and not text.startswith("---"):
            end = len(text)
            if not self._stream.is_complete:
                raise ListError("too much text after the items of a List")
        tail = self._stream.take(end)
        if _ITEMS_PATTERN.search(tail):
            raise ListError("the key 'items' is here twice")
        try:
            document = read(Chunk(self._head + tail))
        except YamlError as error:
            raise ListError(f"this is no List: {error.message}") from error
        check_kind(document.value if document else None, self._kind)


def _start_of_comments_above(text: str, start: int) -> int:
    """Return the offset at which the comments and empty lines above the line at `start` begin."""
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        if text[above:start].strip() and not text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start


def _kind_in_head(head: str) -> str:
    document = read(Chunk(head))
    kind = document.value.get("kind") if document and isinstance(document.value, dict) else None
    return kind if isinstance(kind, str) else ""


MAX_STREAM_BYTES = 1 << 30
_ANCHOR_PATTERN = re.compile(rb"(?:[:?-][ \t\r\n]+|[\[{,][ \t]*)&\w")


def split_large_inputs(inputs: Iterable[Input], *, with_values: bool = False) -> Iterator[Input]:
    """`inputs` with several sources in place of a large one.

    To cut JSON, it has to be decoded: with `with_values`, its sources have their values.
    """
    for given in inputs:
        if isinstance(given, StandardInput):
            yield from _split_input(given, given.stream, with_values=with_values)
        elif isinstance(given, InputFile) and may_be_large(given):
            yield from _split_file(given, with_values=with_values)
        else:
            yield given


def _split_file(given: InputFile, *, with_values: bool) -> Iterator[Input]:
    if (refused := given.refusal()) is not None:
        yield refused
        return
    try:
        with open(given.name, "rb") as file:
            yield from _split_input(given, file.read, with_values=with_values)
    except OSError as error:
        yield UnreadableSource(given.name, reason_of(error))


def _split_input(
    given: InputFile | StandardInput, read: Callable[[int], bytes], *, with_values: bool
) -> Iterator[Input]:
    head = read(MAX_BYTES + 1)
    is_small = len(head) <= MAX_BYTES
    if len(head) < LARGE_BYTES or (
        is_small and (_ANCHOR_PATTERN.search(head) or b"apiVersion" not in head)
    ):
        yield given.to_source(head)
        return
    rest = iter((head,))
    stream = TextStream(lambda size: next(rest, b"") or read(size), MAX_STREAM_BYTES)
    found = 0
    try:
        for source in _sources(given.name, stream, with_values=with_values):
            found += 1
            part = source.part and source.part._replace(is_first=found == 1)
            yield source._replace(part=part)
    except UnicodeDecodeError:
        yield UnreadableSource(given.name, "not UTF-8")
    except TooLargeError:
        yield UnreadableSource(given.name, f"the part beyond {MAX_STREAM_BYTES >> 20} MiB")
    except ListError as error:
        if not found and is_small:
            yield given.to_source(head)
        else:
            yield UnreadableSource(given.name, f"from line {stream.line} on: {error}")


def _sources(name: str, stream: TextStream, *, with_values: bool) -> Iterator[Source]:
    while True:
        stream.fill(LARGE_BYTES)
        if not stream.text:
            return
        end = _end_of_documents(stream)
        if end:
            part = SourcePart(line_offset=stream.line - 1)
            yield Source(name, stream.take(end), part=part)
            continue
        if in_yaml := YamlList.begin(stream):
            yield from in_yaml.parts(name)
        elif in_json := JsonList.begin(stream):
            yield from in_json.parts(name, with_values=with_values)
        else:
            raise ListError(f"a document larger than {LARGE_BYTES >> 20} MiB that is no List")


def _end_of_documents(stream: TextStream) -> int:
    """Return the length of the whole documents that make a part, in characters; 0 for none."""
    text = stream.text
    end = (
        text.find("\n---", PART_CHARACTERS, LARGE_BYTES) + 1
        or text.rfind("\n---", 1, PART_CHARACTERS) + 1
    )
    return end or (len(text) if stream.is_complete and len(text) < LARGE_BYTES else 0)
