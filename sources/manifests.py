"""The Kubernetes objects in a text, the position of each path, and what reports show of it."""

import json
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from kubeyaml import Chunk, Document, LimitError, Lines, Place, YamlError, split
from rules.base.json_values import Path
from sources.sources import HIDDEN_WORD_PATTERN, Source, definition_head, has_placeholder

_EXCERPT_CHARACTERS = 120  # characters
_LINES_AROUND = 2
# How far the lines around are searched; longer ones are hardly for people.
_MAX_LINE_CHARACTERS = 1_000  # characters
# To count the bytes before a column takes time; a longer line is hardly for people.
_MAX_BYTE_COLUMN = 10_000


class Span(NamedTuple):
    """A piece of a text: offsets, and line and column of its start, from 1."""

    start: int
    end: int
    line: int
    column: int


# One set of characters comes first, so that the search passes over all others quickly.
_OBJECT_IN_TEXT = re.compile(
    r"""[{,"'](?:(?<=[{,])\s*(?:\\n\s*)?\\*["']?apiVersion\\*["']?\s*:|(?<=["'])apiVersion:)"""
)


class Excerpt(NamedTuple):
    """The text at a span: what reports show of it, and where it ends.

    - `text`: the part of the first line around the span, which begins at the index `start` in it
      and has `width` characters there, at least 1.
    - `before`, `after`: up to two lines on each side of that line.
    - `end_line`, `end_column`: the first character after the span.
    - `start_byte`, `end_byte`: its columns in bytes of UTF-8, from 1; 0 if they are too large.
    """

    text: str
    start: int
    width: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    end_line: int
    end_column: int
    start_byte: int
    end_byte: int


def excerpt_at(text: str, span: Span) -> Excerpt:
    """Return an excerpt of `text` at `span`. The work does not grow with the length of lines."""
    line_start = span.start - span.column + 1
    start = max(line_start, span.start - _EXCERPT_CHARACTERS // 2)
    line_end = text.find("\n", span.start, start + _EXCERPT_CHARACTERS)
    piece = text[start : line_end if line_end >= 0 else start + _EXCERPT_CHARACTERS].rstrip("\r")
    inside = text[span.start : span.end]
    last = inside.rfind("\n")
    return Excerpt(
        text=piece,
        start=span.start - start,
        width=max(1, min(len(inside), len(piece) - (span.start - start))),
        before=_lines_before(text, line_start),
        after=_lines_after(text, span.start),
        end_line=span.line + inside.count("\n"),
        end_column=len(inside) - last if last >= 0 else span.column + len(inside),
        start_byte=_byte_column(text, span.start),
        end_byte=_byte_column(text, span.end),
    )


def span_alone(excerpt: Excerpt) -> Excerpt:
    """Return `excerpt` without what is around its span."""
    text = excerpt.text[excerpt.start : excerpt.start + excerpt.width]
    return excerpt._replace(text=text, start=0, before=(), after=())


def _lines_before(text: str, start: int) -> tuple[str, ...]:
    """The lines above the line that begins at `start`."""
    first = max(0, start - _MAX_LINE_CHARACTERS)
    lines = text[first:start].rsplit("\n", _LINES_AROUND + 1)[:-1]
    return tuple(
        line[:_EXCERPT_CHARACTERS].rstrip("\r") for line in lines[first > 0 :][-_LINES_AROUND:]
    )


def _lines_after(text: str, offset: int) -> tuple[str, ...]:
    """The lines below the line of `offset`."""
    stop = offset + _MAX_LINE_CHARACTERS
    lines = text[offset:stop].split("\n", _LINES_AROUND + 1)
    if stop < len(text) or not lines[-1]:
        lines.pop()
    return tuple(line[:_EXCERPT_CHARACTERS].rstrip("\r") for line in lines[1 : _LINES_AROUND + 1])


def _byte_column(text: str, offset: int) -> int:
    start = text.rfind("\n", max(0, offset - _MAX_BYTE_COLUMN), offset) + 1
    if not start and offset > _MAX_BYTE_COLUMN:
        return 0
    if text.isascii():
        return offset - start + 1
    return len(text[start:offset].encode(errors="surrogatepass")) + 1


MAX_DOCUMENTS = 20_000
_TEMPLATE_ELSEWHERE_REASON = "a template outside a chart's templates: lint what it renders to"
# Two escapes that make one character; an escaped backslash is stepped over.
_SURROGATE_PAIR_PATTERN = r"\\\\|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"


# Every object has these keys, which a text may also have by an escape, a tag or a merge.
_OBJECT_WORD_PATTERN = rf"\bkind\b|apiVersion|{HIDDEN_WORD_PATTERN}|<<"


# How much longer than the character the two escapes are.
_ESCAPES_LENGTH = len(r"\ud83d\ude00") - 1


class UnparsedDocument(NamedTuple):
    """A document that could not be parsed."""

    line: int
    column: int
    why: str
    is_template: bool = False
    """whether it is no YAML, and has placeholders as a chart's template"""
    may_be_object: bool = True
    """whether an object of Kubernetes may be in it"""


class File:
    """A source that converts offsets to lines and columns."""

    def __init__(self, source: Source) -> None:
        self.original = source
        # JSON writes what lies beyond 16 bits as two escapes, which YAML has no place for.
        if source.text.lstrip().startswith(("{", "[")):
            source = source._replace(
                text=re.sub(_SURROGATE_PAIR_PATTERN, _join_surrogates, source.text)
            )
        self.source = source
        self._shift = 0
        self._other_chunks: list[Chunk] | None = None
        """What `other_documents` reads, as soon as `manifests` has read all."""

    def shifted(self, shift: int) -> "File":
        """Return the file for documents that were read `shift` characters before their place."""
        view = File(self.original)
        view._shift = shift
        view._lines = self._lines
        view.has_secret = self.has_secret
        view.may_have_manifest_in_command = self.may_have_manifest_in_command
        return view

    @property
    def _places(self) -> "Places | None":
        places: Places | None = self.source.places
        return places

    @cached_property
    def has_secret(self) -> bool:
        """Return whether a Secret may be in the file: then reports show no more than a span."""
        text = self.source.text
        if self.original.is_beside_secret or "Secret" not in text:
            return self.original.is_beside_secret
        # In YAML and in JSON.
        return re.search(r"""\bkind["']?[ \t]*:[ \t]*["']?Secret\b""", text) is not None

    @cached_property
    def may_have_manifest_in_command(self) -> bool:
        """Return whether a command in the file may have a manifest in its text.

        It is a here-document, an object in flow style, or one that begins a quoted text.
        """
        text = self.source.text
        if "<<" in text:
            return True
        # In most files each object begins on a line of its own, which is much faster to see.
        *before, _ = text.split("apiVersion")
        return not all(map(_ends_before_object, before)) and bool(_OBJECT_IN_TEXT.search(text))

    @cached_property
    def _lines(self) -> Lines:
        """Line breaks, counted once."""
        return Lines(self.source.text)

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset, both from 1."""
        if places := self._places:
            span = places.span_of_path(())
            return span.line, span.column
        line, column = self._lines.line_and_column(offset + self._shift)
        part = self.source.part
        if part is None:
            return line, column
        return line + part.line_offset, column + part.column_offset * (line == part.line)

    def line_start(self, number: int) -> int:
        """The offset of the line `number`, from 1; the end of the text if it has fewer lines."""
        return self._lines.start(number)

    def span(self, start: int, end: int) -> Span:
        """The piece between two offsets."""
        line, column = self.position(start)
        return Span(start + self._shift, end + self._shift, line, column)

    def excerpt(self, span: Span) -> Excerpt:
        """The text at `span`."""
        if places := self._places:
            return places.file.excerpt(span)
        part = self.source.part
        if part is None:
            return excerpt_at(self.source.text, span)
        above = span.line - part.line_offset - part.line
        columns = 0 if above else part.column_offset
        excerpt = excerpt_at(self.source.text, span._replace(column=span.column - columns))
        before = excerpt.before[max(0, len(excerpt.before) - above) :]
        if not columns:
            return excerpt._replace(before=before)
        end = excerpt.end_column + columns * (excerpt.end_line == span.line)
        return excerpt._replace(before=before, end_column=end, start_byte=0, end_byte=0)

    def original_offset(self, offset: int) -> int:
        """Return the offset in the original of the character at `offset` of the source."""
        return offset + _ESCAPES_LENGTH * bisect_left(self._surrogate_offsets, offset)

    @cached_property
    def _surrogate_offsets(self) -> list[int]:
        """The offsets of characters that the original writes as two escapes."""
        joined: list[int] = []
        if self.source.text != self.original.text:
            for pair in re.finditer(_SURROGATE_PAIR_PATTERN, self.original.text):
                if pair[1]:
                    joined.append(pair.start() - _ESCAPES_LENGTH * len(joined))
        return joined

    def manifests(self, *, reads_definitions: bool = True) -> Iterator[Document | UnparsedDocument]:
        """Every Kubernetes object in the file; other documents are skipped silently.

        Without `reads_definitions`, nothing but the kind is read of CustomResourceDefinitions.
        """
        other_chunks: list[Chunk] = []
        for number, chunk in enumerate(split(self.source.text)):
            if number >= MAX_DOCUMENTS:
                line, _ = self.position(chunk.start)
                yield UnparsedDocument(line, 1, f"more than {MAX_DOCUMENTS} documents in one file")
                return
            if not reads_definitions and (head := definition_head(chunk.text)):
                chunk = chunk._replace(text=head)  # noqa: PLW2901
            try:
                document = self.source.read_document(chunk)
            except YamlError as error:
                if not _is_other_json(chunk.text):
                    yield self._unparsed(chunk, error)
                continue
            if document is not None and is_kubernetes(document.value):
                yield document
            elif document is not None:
                other_chunks.append(chunk)
        self._other_chunks = other_chunks

    def _unparsed(self, chunk: Chunk, error: YamlError) -> UnparsedDocument:
        text, why = self.source.text, error.message
        offset = min(error.offset, len(text))
        is_template = has_placeholder(chunk.text) and not isinstance(error, LimitError)
        # Helm has filled in its own placeholders, but texts in objects are for others to fill in.
        is_rendered = self.source.is_rendering and not self.source.is_embedded
        if is_template and not (self.source.is_template or is_rendered):
            here = text[text.rfind("\n", 0, offset) + 1 :].partition("\n")[0]
            # What YAML says of the placeholder itself explains nothing.
            detail = "" if has_placeholder(here) else f" ({why})"
            why = _TEMPLATE_ELSEWHERE_REASON + detail
        line, column = self.position(offset)
        return UnparsedDocument(
            line=line,
            column=column,
            why=why,
            is_template=is_template and self.source.is_template,
            may_be_object=isinstance(error, LimitError)
            or re.search(_OBJECT_WORD_PATTERN, chunk.text) is not None,
        )

    @cached_property
    def has_values(self) -> bool:
        """Return whether the file has a chart's values, by its name or that of its folder."""
        return not self.source.is_rendering and _is_values_file(self.source.name)

    def values(self) -> Iterator[Document]:
        """The documents of a file that has a chart's values; of others none."""
        if self.has_values:
            yield from self.other_documents()

    @property
    def may_have_other_documents(self) -> bool:
        """Return whether `other_documents` may yield some."""
        return self._other_chunks != []

    def other_documents(self) -> Iterator[Document]:
        """The documents that are no objects of Kubernetes."""
        chunks: Iterable[Chunk] = islice(split(self.source.text), MAX_DOCUMENTS)
        if self._other_chunks is not None:
            chunks = self._other_chunks
        for chunk in chunks:
            try:
                document = self.source.read_document(chunk)
            except YamlError:
                continue  # `manifests` yields it as one that could not be parsed
            if document is not None and not is_kubernetes(document.value):
                yield document

    def span_of_path(self, document: Document, path: Path) -> Span:
        """The position of `path`, or of its nearest parent that exists.

        It is the value of a scalar, and the key of a collection or a parent.
        """
        if places := self._places:
            return places.span_of_path(path)
        place, complete = document.place.nearest(path)
        if complete and not place.is_collection and place.end > place.start:
            return self.span(place.start, place.end)
        if place.key_start >= 0:
            return self.span(place.key_start, place.key_end)
        return self.span(place.start, _first_key_end(place))


class Places(NamedTuple):
    """The places in `file` of an object that was made from a part of it, by the object's paths."""

    file: File
    span_of_path: Callable[[Path], Span]


def _join_surrogates(pair: re.Match[str]) -> str:
    character: str = json.loads(f'"{pair[1]}"') if pair[1] else pair[0]
    return character


# Rancher Fleet and helmfile have values of charts in their own files.
_FILES_WITH_VALUES = ("values", "fleet.yaml", "helmfile")
_FOLDER_WITH_VALUES = "values"


def _is_values_file(name: str) -> bool:
    folder, base = os.path.split(name)
    is_in_folder = os.path.basename(folder) == _FOLDER_WITH_VALUES
    return is_in_folder or any(word in base for word in _FILES_WITH_VALUES)


def _ends_before_object(text: str) -> bool:
    """Return whether no object in flow style begins where `text` ends."""
    return text[-1:] in {"", "\n"} and not text.rstrip().endswith(("{", ",", "\\n"))


def _is_other_json(text: str) -> bool:
    """Return whether `text` is JSON that is no object of a kind, such as a tokenizer or a list.

    YAML may refuse its keys and characters. kubectl reads such a text as JSON.
    """
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return not (isinstance(value, dict) and "kind" in value)


def is_kubernetes(value: Any) -> bool:
    """Return whether the value of a document is an object of Kubernetes."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and (isinstance(value.get("apiVersion"), str) or isinstance(value.get("spec"), dict))
    )


def _first_key_end(place: Place) -> int:
    if isinstance(place.inside, dict) and place.inside:
        return max(place.start, next(iter(place.inside.values())).key_end)
    return place.end
