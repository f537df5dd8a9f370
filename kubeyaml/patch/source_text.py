"""The text of one document, with its lines."""

from collections.abc import Iterable

from kubeyaml.patch.model import Splice
from kubeyaml.reader import BYTE_ORDER_MARK


class SourceText:
    r"""The text of a document, which is `text` from `start` to `end`. Only "\n" ends a line.

    Offsets count from the start of `text`.
    """

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self.start = start
        self.end = len(text) if end is None else end
        first_line = text[start : text.find("\n", start) + 1]
        # With mixed line breaks, new lines end like the first one.
        self.line_break = "\r\n" if first_line.endswith("\r\n") else "\n"
        self._first_column = start + text.startswith(BYTE_ORDER_MARK, start)

    def between(self, start: int, end: int) -> str:
        """The text between two offsets."""
        return self.text[start:end]

    def line_start(self, offset: int) -> int:
        """The start of the line of the character at `offset`."""
        return max(self.text.rfind("\n", 0, offset) + 1, self._first_column)

    def line_end(self, offset: int) -> int:
        """The offset behind the line break of the line of `offset`, or the end of the text."""
        return (self.text.find("\n", offset) + 1) or len(self.text)

    def column(self, offset: int) -> int:
        """How many characters are before `offset` on its line."""
        return offset - self.line_start(offset)

    def rest_of_line(self, offset: int) -> str:
        """What follows `offset` on its line, without blanks around it."""
        return self.between(offset, self.line_end(offset)).strip()

    def insert_lines(self, offset: int, lines: Iterable[str]) -> Splice:
        """The splice that puts `lines` below the line of `offset`."""
        end = self.line_end(offset)
        new = "".join(line + self.line_break for line in lines)
        if self.between(offset, end).endswith("\n"):
            return Splice(end, end, new)
        # The last line stays without a line break.
        return Splice(end, end, self.line_break + new.removesuffix(self.line_break))

    def spliced(self, splices: Iterable[Splice]) -> str:
        """The text of the document with all `splices` made; they must not overlap."""
        pieces, done = [], self.start
        for start, end, new in sorted(splices, key=lambda splice: splice[:2]):
            pieces += [self.text[done:start], new]
            done = end
        return "".join((*pieces, self.text[done : self.end]))
