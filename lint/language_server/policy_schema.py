"""The path of a position in a policy, and the keys and values that may stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from lsprotocol.types import Position

from lint.language_server.diagnostics import Positions
from policies.profiles import built_in_profiles
from policies.validation import policy_schema
from reports.findings import RULE_BY_NAME

KeyPath: TypeAlias = tuple[str, ...]
"""Keys from the top of a policy; `ITEM_STEP` stands for an item of a list."""

ITEM_STEP = "-"
_LINE_PATTERN = re.compile(r"( *)((?:- +)*(?:-$)?)(?:([\w.*/-]+|\"[^\"]*\"|'[^']*') *:(?:\s|$))?")
# What is looked at: lines above a position, and characters of a line.
_MAX_LINES = 2_000
_MAX_LINE_CHARACTERS = 200


class DashOrKey(NamedTuple):
    """The dash of an item or a key on a line, and its column."""

    column: int
    name: str


class SchemaPlace(NamedTuple):
    """A position: the collection that it is in, and the key before it on its line, if any."""

    path: KeyPath
    key: str = ""


def place_before(text: str, positions: Positions, position: Position) -> SchemaPlace:
    """The place at which the text before `position` ends."""
    start = positions.line_start(position.line)
    before = text[start : positions.offset(position)][:_MAX_LINE_CHARACTERS]
    *dashes, key = _dashes_and_key(before) or [DashOrKey(len(before) - len(before.lstrip(" ")), "")]
    if key.name == ITEM_STEP:
        dashes, key = [*dashes, key], DashOrKey(len(before), "")
    path = _path_above(text, positions, position.line, [*dashes, key])
    return SchemaPlace((*path, *(ITEM_STEP for _ in dashes)), key.name)


def place_of_key(text: str, positions: Positions, position: Position) -> SchemaPlace:
    """The key on the line of `position`, with the collection that it is in."""
    end = Position(position.line, _MAX_LINE_CHARACTERS)
    return place_before(text, positions, end)


def _dashes_and_key(line: str) -> list[DashOrKey]:
    """The dashes at the beginning of a line and the key behind them."""
    match = _LINE_PATTERN.match(line)
    if match is None or line.lstrip().startswith("#"):
        return []
    parts = [
        DashOrKey(match.start(2) + dash.start(), ITEM_STEP) for dash in re.finditer("-", match[2])
    ]
    if match[3]:
        parts.append(DashOrKey(match.start(3), match[3].strip("\"'")))
    return parts


def _path_above(text: str, positions: Positions, number: int, parts: list[DashOrKey]) -> list[str]:
    """The path of the collection in which the line `number` with these parts stands."""
    path: list[str] = []
    column, is_item = parts[0].column, parts[0].name == ITEM_STEP
    for above in range(number - 1, max(-1, number - 1 - _MAX_LINES), -1):
        start, end = positions.line_start(above), positions.line_end(above)
        for part in reversed(_dashes_and_key(text[start : min(end, start + _MAX_LINE_CHARACTERS)])):
            # The dashes of a list may stand below the first letter of its key.
            if part.column < column or (
                part.name != ITEM_STEP and is_item and part.column == column
            ):
                path.insert(0, part.name)
                column, is_item = part.column, part.name == ITEM_STEP
        if column == 0 and not is_item:
            break
    return path


Schema: TypeAlias = Mapping[str, Any]
_DEPTH_OF_RULE_SETTINGS = 2  # rules, NAME


class Choice(NamedTuple):
    """A key or a value that may stand at a place."""

    text: str
    description: str = ""
    is_key: bool = False


def choices_at(place: SchemaPlace) -> Iterator[Choice]:
    """The keys and values that may stand at a place."""
    if place.key:
        yield from _value_choices((*place.path, place.key))
        return
    yield from _key_choices(place.path)
    if place.path[-1:] == (ITEM_STEP,):
        yield from _value_choices(place.path)


def describe_path(path: KeyPath) -> str:
    """Return the schema's description of a key and its values; empty if it has none."""
    parts = []
    for found in _schemas_at(path):
        if "description" in found:
            parts.append(str(found["description"]))
        if values := found.get("enum"):
            parts.append("Values: " + ", ".join(f"`{value}`" for value in values))
    return "\n\n".join(dict.fromkeys(parts))


def _key_choices(path: KeyPath) -> Iterator[Choice]:
    if path == ("rules",):
        yield from (Choice(name, rule.summary, is_key=True) for name, rule in RULE_BY_NAME.items())
        return
    if (
        path[:1] == ("rules",)
        and path[_DEPTH_OF_RULE_SETTINGS:] == ("options",)
        and path[1] in RULE_BY_NAME
    ):
        options = RULE_BY_NAME[path[1]].options.items()
        yield from (Choice(name, f"Default: {value}", is_key=True) for name, value in options)
        return
    for found in _schemas_at(path):
        for key in found.get("properties", ()):
            if not any("not" in value for value in _schemas_at((*path, key))):  # reserved
                yield Choice(key, describe_path((*path, key)), is_key=True)


def _value_choices(path: KeyPath) -> Iterator[Choice]:
    """The values of a key or an item; those of its items if it may be a list."""
    if path[-1] != ITEM_STEP and any("items" in found for found in _schemas_at(path)):
        path = (*path, ITEM_STEP)
    if path in {("profiles", ITEM_STEP), ("profiles", ITEM_STEP, "extends", ITEM_STEP)}:
        yield from (Choice(name) for name in built_in_profiles())
    elif path[-2:] == ("rules", ITEM_STEP):
        yield from (Choice(name, rule.summary) for name, rule in RULE_BY_NAME.items())
    for found in _schemas_at(path):
        yield from (Choice(str(value)) for value in found.get("enum", ()))
        if "const" in found:
            yield Choice(str(found["const"]))
        if found.get("type") == "boolean":
            yield from (Choice("true"), Choice("false"))


def _schemas_at(path: KeyPath) -> list[Schema]:
    """The schemas of what is at `path`: more than one if it may be this or that."""
    found = _alternatives(policy_schema())
    for step in path:
        below = (_schema_below(one, step) for one in found)
        found = [alternative for one in below for alternative in _alternatives(one)]
    return found


def _schema_below(one: Schema, step: str) -> Any:
    if step == ITEM_STEP:
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
