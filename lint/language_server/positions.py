"""Convert between offsets in a text and positions of the Language Server Protocol."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right

from lsprotocol.types import Position, PositionEncodingKind, Range

# The protocol knows more line breaks than YAML, and fewer than Python's splitlines.
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
# Characters that take more than one unit; one pattern for each further unit.
_WIDE = {
    PositionEncodingKind.Utf8: (
        "[\x80-\U0010ffff]",
        "[\u0800-\U0010ffff]",
        "[\U00010000-\U0010ffff]",
    ),
    PositionEncodingKind.Utf16: ("[\U00010000-\U0010ffff]",),
    PositionEncodingKind.Utf32: (),
}


class Positions:
    """The positions in one text, in the units that client and server have agreed on.

    All conversions take logarithmic time, also in a file that is one long line.
    """

    def __init__(self, text: str, encoding: PositionEncodingKind | str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]
        # Reports count only these as ends of lines.
        self._line_feeds = [0, *(match.end() for match in re.finditer("\n", text))]
        patterns = () if text.isascii() else _WIDE[PositionEncodingKind(encoding)]
        self._wide = [
            array("I", (match.start() for match in re.finditer(pattern, text)))
            for pattern in patterns
        ]

    def at(self, offset: int) -> Position:
        """The position of the character at `offset`."""
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self._units(self._starts[line], offset))

    def between(self, start: int, end: int) -> Range:
        """The range between two offsets."""
        return Range(self.at(start), self.at(end))

    def offset(self, position: Position) -> int:
        """The offset of a position; of one behind the end of its line, the end of the line."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[position.line]
        characters = range(start, self.line_end(position.line) + 1)
        found = bisect_left(characters, position.character, key=lambda end: self._units(start, end))
        return min(start + found, characters[-1])

    def rest_of_line(self, line: int, column: int) -> Range:
        """The range from a line and a column, as reports count them, to the end of the line."""
        first = self._line_feeds[min(line, len(self._line_feeds)) - 1]
        start = min(first + column - 1, len(self._text))
        return self.between(start, max(start, self.line_end(self.at(start).line)))

    def line_start(self, line: int) -> int:
        """The offset of the first character of a line, whose number counts from 0."""
        return self._starts[min(line, len(self._starts) - 1)]

    def line_end(self, line: int) -> int:
        """The offset of the end of a line, without its line break."""
        if line + 1 >= len(self._starts):
            return len(self._text)
        end = self._starts[line + 1] - 1
        return end - (self._text[end - 1 : end + 1] == "\r\n")

    def _units(self, start: int, end: int) -> int:
        """How many units the text between two offsets takes."""
        further = (bisect_left(wide, end) - bisect_left(wide, start) for wide in self._wide)
        return end - start + sum(further)
