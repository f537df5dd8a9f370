"""Pieces of a text, and what reports show of them."""

from typing import NamedTuple

_EXCERPT = 120  # characters
_LINES_AROUND = 2
# How far the lines around are searched; longer ones are hardly for people.
_MAX_LINE = 1_000  # characters
# To count the bytes before a column takes time; a longer line is hardly for people.
_MAX_BYTE_COLUMN = 10_000


class Span(NamedTuple):
    """A piece of a text: offsets, and line and column of its start, from 1."""

    start: int
    end: int
    line: int
    column: int


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
    """What `text` has at `span`. The work does not grow with the length of lines."""
    line_start = span.start - span.column + 1
    start = max(line_start, span.start - _EXCERPT // 2)
    line_end = text.find("\n", span.start, start + _EXCERPT)
    piece = text[start : line_end if line_end >= 0 else start + _EXCERPT].rstrip("\r")
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


def _lines_before(text: str, start: int) -> tuple[str, ...]:
    """The lines above the line that begins at `start`."""
    first = max(0, start - _MAX_LINE)
    lines = text[first:start].rsplit("\n", _LINES_AROUND + 1)[:-1]
    return tuple(line[:_EXCERPT].rstrip("\r") for line in lines[first > 0 :][-_LINES_AROUND:])


def _lines_after(text: str, offset: int) -> tuple[str, ...]:
    """The lines below the line of `offset`."""
    stop = offset + _MAX_LINE
    lines = text[offset:stop].split("\n", _LINES_AROUND + 1)
    if stop < len(text) or not lines[-1]:
        lines.pop()
    return tuple(line[:_EXCERPT].rstrip("\r") for line in lines[1 : _LINES_AROUND + 1])


def _byte_column(text: str, offset: int) -> int:
    start = text.rfind("\n", max(0, offset - _MAX_BYTE_COLUMN), offset) + 1
    if not start and offset > _MAX_BYTE_COLUMN:
        return 0
    if text.isascii():
        return offset - start + 1
    return len(text[start:offset].encode(errors="surrogatepass")) + 1
