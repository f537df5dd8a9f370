"""What may stand at a place of a policy, from its JSON Schema and the catalog of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from lint.language_server.policy_paths import ITEM, KeyPath, Place
from policies.profiles import built_in
from policies.validation import schema
from reports.findings import RULES

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
        yield from (Choice(name) for name in built_in())
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
    found = _alternatives(schema())
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
        found += _alternatives(schema()["$defs"][one["$ref"].rpartition("/")[2]])
    for alternative in one.get("oneOf", ()):
        found += _alternatives(alternative)
    return found
