"""Where in a policy a position is, and what may stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from lsprotocol.types import Position

from lint.language_server.diagnostics import Positions
from policies.profiles import built_in_profiles
from policies.validation import policy_schema
from reports.findings import RULES

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


Schema: TypeAlias = Mapping[str, Any]
_RULE_SETTINGS = 2  # rules, NAME


class Choice(NamedTuple):
    """A key or a value that may stand at a place."""

    text: str
    description: str = ""
    is_key: bool = False


def choices(place: Place) -> Iterator[Choice]:
    """The keys and values that may stand at a place."""
    if place.key:
        yield from _values((*place.path, place.key))
        return
    yield from _keys(place.path)
    if place.path[-1:] == (ITEM,):
        yield from _values(place.path)


def describe(path: KeyPath) -> str:
    """What the schema says about a key and its values; empty if it says nothing."""
    parts = []
    for found in _schemas(path):
        if "description" in found:
            parts.append(str(found["description"]))
        if values := found.get("enum"):
            parts.append("Values: " + ", ".join(f"`{value}`" for value in values))
    return "\n\n".join(dict.fromkeys(parts))


def _keys(path: KeyPath) -> Iterator[Choice]:
    if path == ("rules",):
        yield from (Choice(name, rule.summary, is_key=True) for name, rule in RULES.items())
        return
    if path[:1] == ("rules",) and path[_RULE_SETTINGS:] == ("options",) and path[1] in RULES:
        options = RULES[path[1]].options.items()
        yield from (Choice(name, f"Default: {value}", is_key=True) for name, value in options)
        return
    for found in _schemas(path):
        for key in found.get("properties", ()):
            if not any("not" in value for value in _schemas((*path, key))):  # reserved
                yield Choice(key, describe((*path, key)), is_key=True)


def _values(path: KeyPath) -> Iterator[Choice]:
    """The values of a key or an item; those of its items if it may be a list."""
    if path[-1] != ITEM and any("items" in found for found in _schemas(path)):
        path = (*path, ITEM)
    if path in {("profiles", ITEM), ("profiles", ITEM, "extends", ITEM)}:
        yield from (Choice(name) for name in built_in_profiles())
    elif path[-2:] == ("rules", ITEM):
        yield from (Choice(name, rule.summary) for name, rule in RULES.items())
    for found in _schemas(path):
        yield from (Choice(str(value)) for value in found.get("enum", ()))
        if "const" in found:
            yield Choice(str(found["const"]))
        if found.get("type") == "boolean":
            yield from (Choice("true"), Choice("false"))


def _schemas(path: KeyPath) -> list[Schema]:
    """The schemas of what is at `path`: more than one if it may be this or that."""
    found = _alternatives(policy_schema())
    for step in path:
        below = (_below(one, step) for one in found)
        found = [alternative for one in below for alternative in _alternatives(one)]
    return found


def _below(one: Schema, step: str) -> Any:
    if step == ITEM:
        return one.get("items")
    return one.get("properties", {}).get(step, one.get("additionalProperties"))


def _alternatives(one: Any) -> list[Schema]:
    if not isinstance(one, Mapping):
        return []
    found = [one]
    if "$ref" in one:
        found += _alternatives(policy_schema()["$defs"][one["$ref"].rpartition("/")[2]])
    for alternative in one.get("oneOf", ()):
        found += _alternatives(alternative)
    return found
