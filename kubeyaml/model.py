"""The results of reading YAML: values, their places in the text, and errors.

All offsets count characters from the start of the whole file.
"""

from bisect import bisect_right
from io import StringIO
from itertools import accumulate
from typing import NamedTuple

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
Path = tuple[str | int, ...]


class YamlError(Exception):
    """Text that kubectl's parser refuses, or that this reader refuses for safety.

    `message` is the reason; `offset` is the position in the file.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message = message
        self.offset = offset

    def __str__(self) -> str:
        return self.message


class LimitError(YamlError):
    """Text that exceeds a limit of this reader; kubectl may well read it."""


class Limits(NamedTuple):
    """The limits of one document. They are far above every object that an API server stores."""

    max_depth: int = 100
    """levels of nested mappings and lists; an alias counts with the levels of its target"""
    max_nodes: int = 500_000
    """parser events: keys, scalars, aliases, and starts and ends of mappings and lists"""
    max_alias_nodes: int = 100_000
    """the nodes that aliases add, if the target of each alias is copied in its place"""


class Chunk(NamedTuple):
    """The text of one document in a file; `start` is its offset, `line` its first line, from 1."""

    text: str
    start: int = 0
    line: int = 1
    error: YamlError | None = None
    """why kubectl refuses the separator line that this chunk begins with"""


class Place:
    """The position of a value in the text, and the places of its children.

    The span begins at the value's tag or anchor, if it has one, and ends with its last child. The
    children of an alias or of a `<<` keep the offsets at which they were written.
    """

    __slots__ = ("end", "inside", "key_end", "key_start", "note", "start", "style")

    def __init__(
        self,
        start: int,
        end: int,
        key_start: int,
        key_end: int,
        style: str,
        note: str,
        inside: "dict[str, Place] | list[Place] | None",
    ) -> None:
        self.start = start
        self.end = end
        # The span of the key; -1 if the value is not in a mapping.
        self.key_start = key_start
        self.key_end = key_end
        # plain, single, double, literal, folded, block, flow or alias
        self.style = style
        # What makes an edit unsafe: anchor, tag, alias, merge (supplied by a `<<`), or empty.
        self.note = note
        # Places of the children, by the value's keys or indices; None for a scalar.
        self.inside = inside

    def merged(self) -> "Place":
        """Return a copy of this place with the note that a `<<` supplied it."""
        key = (self.key_start, self.key_end)
        return Place(self.start, self.end, *key, self.style, "merge", self.inside)


class Duplicate(NamedTuple):
    """A key that its mapping repeats: the path, and the offset of the later key, which wins."""

    path: Path
    key_start: int


class Document(NamedTuple):
    """The value of a chunk, with its place; `start`, `end` and `line` are those of the chunk.

    An alias and its anchor share one object, so copy `value` before you change it.
    """

    value: Json
    place: Place
    start: int
    end: int
    line: int
    duplicates: tuple[Duplicate, ...]


class Lines:
    r"""The lines of a text, to convert many offsets in it. Only "\n" ends a line."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._starts = [0, *accumulate(map(len, StringIO(text, newline="\n")))]
        if text and not text.endswith("\n"):
            self._starts.pop()

    def at(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of the character at `offset`, both from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def start(self, line: int) -> int:
        """Return the offset of a line, from 1; the end of the text if there are fewer lines."""
        return self._starts[line - 1] if line <= len(self._starts) else self._length


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of the character at `offset`, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
