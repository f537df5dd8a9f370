"""What reading gives: values, the places where they stand, and errors.

All offsets count characters from the start of the whole file.
"""

import re
from bisect import bisect_left
from typing import NamedTuple

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
Path = tuple[str | int, ...]


class YamlError(Exception):
    """Text that kubectl's parser refuses, or this reader for safety's sake: why, and where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message = message
        self.offset = offset

    def __str__(self) -> str:
        return self.message


class Limits(NamedTuple):
    """What one document may cost. Nothing that an API server would store comes near."""

    max_depth: int = 100
    """collections inside one another, counting those behind aliases"""
    max_nodes: int = 500_000
    """keys, scalars, aliases, and starts and ends of collections, as written"""
    max_alias_nodes: int = 100_000
    """the same, added by putting what it stands for in place of each alias"""


class Chunk(NamedTuple):
    """The text of one document in a file: `start` is its offset, `line` its first line, from 1."""

    text: str
    start: int = 0
    line: int = 1
    error: YamlError | None = None
    """why kubectl refuses the separator line that this chunk begins with"""


class Place:
    """Where a value stands: from its tag or anchor, if it has one, to the end of its last child.

    What an alias or a `<<` supplies keeps the offsets of where it was written.
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
        # The span of the key; -1 if the value is not a mapping's.
        self.key_start = key_start
        self.key_end = key_end
        # plain, single, double, literal, folded, block, flow or alias
        self.style = style
        # What an edit has to beware of: anchor, tag, alias, merge (supplied by a `<<`), or nothing.
        self.note = note
        # Places of the children, under the keys or indices of the value's; None for a scalar.
        self.inside = inside

    def merged(self) -> "Place":
        """Return the same place, marked as supplied by a `<<`."""
        key = (self.key_start, self.key_end)
        return Place(self.start, self.end, *key, self.style, "merge", self.inside)


class Duplicate(NamedTuple):
    """A key that its mapping has had before: path, and offset of the later key. The later wins."""

    path: Path
    key_start: int


class Document(NamedTuple):
    """A chunk's value with its places; `start` and `line` are the chunk's.

    An alias shares its value with the anchor: copy before changing anything.
    """

    value: Json
    place: Place
    start: int
    line: int
    duplicates: tuple[Duplicate, ...]


class Lines:
    r"""The lines of a text, for finding many offsets in it. Only "\n" ends a line."""

    def __init__(self, text: str) -> None:
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def at(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character, both from 1."""
        line = bisect_left(self._breaks, offset)
        return line + 1, offset - (self._breaks[line - 1] if line else -1)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of one character of a text, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
