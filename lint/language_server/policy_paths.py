"""Where in a policy a position is, also while the text is no YAML yet."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from lsprotocol.types import Position

from lint.language_server.positions import Positions

KeyPath: TypeAlias = tuple[str, ...]
"""Keys from the top of a policy; `ITEM` stands for an item of a list."""

ITEM = "-"
_LINE = re.compile(r"( *)((?:- +)*(?:-$)?)(?:([\w.*/-]+|\"[^\"]*\"|'[^']*') *:(?:\s|$))?")
# What is looked at: lines above a position, and characters of a line.
_MAX_LINES = 2_000
_MAX_LINE = 200


class Part(NamedTuple):
    """The dash of an item or a key on a line, and its column."""

    column: int
    name: str


class Place(NamedTuple):
    """A position: the collection that it is in, and the key before it on its line, if any."""

    path: KeyPath
    key: str = ""


def place_of_text(text: str, positions: Positions, position: Position) -> Place:
    """The place at which the text before `position` ends."""
    start = positions.line_start(position.line)
    before = text[start : positions.offset(position)][:_MAX_LINE]
    *dashes, key = _parts(before) or [Part(len(before) - len(before.lstrip(" ")), "")]
    if key.name == ITEM:
        dashes, key = [*dashes, key], Part(len(before), "")
    path = _path_above(text, positions, position.line, [*dashes, key])
    return Place((*path, *(ITEM for _ in dashes)), key.name)


def place_of_key(text: str, positions: Positions, position: Position) -> Place:
    """The key on the line of `position`, with the collection that it is in."""
    end = Position(position.line, _MAX_LINE)
    return place_of_text(text, positions, end)


def _parts(line: str) -> list[Part]:
    """The dashes at the beginning of a line and the key behind them."""
    match = _LINE.match(line)
    if match is None or line.lstrip().startswith("#"):
        return []
    parts = [Part(match.start(2) + dash.start(), ITEM) for dash in re.finditer("-", match[2])]
    if match[3]:
        parts.append(Part(match.start(3), match[3].strip("\"'")))
    return parts


def _path_above(text: str, positions: Positions, number: int, parts: list[Part]) -> list[str]:
    """The path of the collection in which the line `number` with these parts stands."""
    path: list[str] = []
    column, is_item = parts[0].column, parts[0].name == ITEM
    for above in range(number - 1, max(-1, number - 1 - _MAX_LINES), -1):
        start, end = positions.line_start(above), positions.line_end(above)
        for part in reversed(_parts(text[start : min(end, start + _MAX_LINE)])):
            # The dashes of a list may stand below the first letter of its key.
            if part.column < column or (part.name != ITEM and is_item and part.column == column):
                path.insert(0, part.name)
                column, is_item = part.column, part.name == ITEM
        if column == 0 and not is_item:
            break
    return path
