"""The results of reading YAML: values, their places in the text, and errors.

All offsets count characters from the start of the whole file, but for those of a RawPlace.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from io import StringIO
from itertools import accumulate
from typing import NamedTuple, TypeAlias

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
Path = tuple[str | int, ...]
# For how many offsets of a text its lines are counted, before a table is made.
_MAX_COUNTED_OFFSETS = 10


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


RawPlace: TypeAlias = tuple[int, int, int, int, str, str, "RawPlaces"]
"""A place as the composer leaves it: start, end, start and end of the key, style, note and inside.

Its offsets count from the start of the chunk. Most places are never asked for, and to make an
object for each would take a tenth of the time of reading.
"""
RawPlaces: TypeAlias = "dict[str, RawPlace] | list[RawPlace] | None"


class Place:
    """The position of a value in the text, and the places of its children.

    The span begins at the value's tag or anchor, if it has one, and ends with its last child. The
    children of an alias or of a `<<` keep the offsets at which they were written.

    - `start`, `end`: the span of the value.
    - `key_start`, `key_end`: the span of the key; -1 if the value is not in a mapping.
    - `style`: plain, single, double, literal, folded, block, flow or alias.
    - `note`: what makes an edit unsafe: anchor, tag, alias, merge (supplied by a `<<`), or empty.
    """

    __slots__ = (
        *("start", "end", "key_start", "key_end", "style", "note"),
        *("_base", "_inside", "_raw"),
    )

    def __init__(self, raw: RawPlace, base: int) -> None:
        start, end, key_start, key_end, self.style, self.note, self._raw = raw
        self.start, self.end = start + base, end + base
        self.key_start = self.key_end = -1
        if key_start >= 0:
            self.key_start, self.key_end = key_start + base, key_end + base
        self._base = base
        self._inside: dict[str, Place] | list[Place] | None = None

    @property
    def is_collection(self) -> bool:
        """Return whether the value is a mapping, a list, or an alias of one."""
        return self._raw is not None

    @property
    def is_mapping(self) -> bool:
        """Return whether the value is a mapping, or an alias of one."""
        return isinstance(self._raw, dict)

    @property
    def inside(self) -> "dict[str, Place] | list[Place] | None":
        """The places of the children, by the value's keys or indices; None for a scalar."""
        raw = self._raw
        if self._inside is None and raw is not None:
            if isinstance(raw, dict):
                self._inside = {key: Place(child, self._base) for key, child in raw.items()}
            else:
                self._inside = [Place(child, self._base) for child in raw]
        return self._inside

    def filled_collections(self) -> "Iterator[Place]":
        """The children that are mappings or lists with entries, without places for the others."""
        raw = self._raw
        for child in raw.values() if isinstance(raw, dict) else raw or ():
            if child[-1]:
                yield Place(child, self._base)

    def nearest(self, path: Path) -> "tuple[Place, bool]":
        """The place of the value at `path`, and True; or that of its nearest parent, and False."""
        found, inside = None, self._raw
        for step in path:
            try:
                found = inside[step]  # type: ignore[index]
            except (LookupError, TypeError):
                return self if found is None else Place(found, self._base), False
            inside = found[-1]
        return self if found is None else Place(found, self._base), True


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
    r"""The lines of a text, to convert offsets in it. Only "\n" ends a line.

    For the first few offsets it counts lines, which takes less than to find all of them.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._counts = 0

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0, *accumulate(map(len, StringIO(self._text, newline="\n")))]
        if self._text and not self._text.endswith("\n"):
            starts.pop()
        return starts

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of the character at `offset`, both from 1."""
        if self._counts < _MAX_COUNTED_OFFSETS:
            self._counts += 1
            return line_and_column(self._text, offset)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def start(self, line: int) -> int:
        """Return the offset of a line, from 1; the end of the text if there are fewer lines."""
        return self._starts[line - 1] if line <= len(self._starts) else len(self._text)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of the character at `offset`, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
