"""An inventory as JSON, in which one program hands it to another."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rules.base.json_access import as_object
from rules.inventory.inventory import Inventory
from rules.inventory.records import RECORDS

VERSION = 1
"""The version of the format. Who knows another one cannot read it."""


def to_json(inventory: Inventory) -> dict[str, Any]:
    """The inventory as an object of JSON; equal inventories give equal objects."""
    return {
        kind.__name__: {
            home: {name: _encode(record) for name, record in sorted(by_name.items())}
            for home, by_name in sorted(by_home.items())
        }
        for kind, by_home in sorted(inventory.records.items(), key=lambda pair: pair[0].__name__)
    }


def from_json(raw: Any) -> Inventory:
    """The inventory that `raw` is. Raises ValueError, which says what has the wrong type."""
    known = {kind.__name__: kind for kind in RECORDS}
    records: dict[type, dict[str, dict[str, Any]]] = {}
    for kind, homes in _entries(raw, "the inventory"):
        if kind not in known:
            raise ValueError(f"it has records of an unknown kind, {kind[:80]!r}")
        by_home = records.setdefault(known[kind], {})
        for home, names in _entries(homes, kind):
            place = by_home.setdefault(home, {})
            for name, record in _entries(names, kind):
                found = None if record is None else _decode(record, known[kind], f"{kind} {name}")
                place[name] = found
    return Inventory(records)


def _entries(raw: Any, what: str) -> Any:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{what[:80]} is no object")  # noqa: TRY004  # of JSON
    return as_object(raw).items()


def _encode(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _encode(each) for key, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: _encode(each) for key, each in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        items = [_encode(each) for each in value]
        return sorted(items) if isinstance(value, frozenset | set) else items
    return value


def _decode(raw: Any, hint: Any, what: str) -> Any:  # noqa: PLR0911  # one for each type
    """The value of the type `hint` that `raw` is in JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return raw
    if hint is NoneType and raw is None:
        return None
    if origin is UnionType:
        return None if raw is None else _decode(raw, parts[0], what)
    if hasattr(hint, "_fields") and isinstance(raw, dict):
        hints = get_type_hints(hint)
        given = {key: _decode(raw.get(key), hints[key], what) for key in hint._fields}
        return hint(**given)
    if origin is not None and issubclass(origin, Mapping) and isinstance(raw, dict):
        return {key: _decode(each, parts[1], what) for key, each in raw.items()}
    if origin in {tuple, frozenset} and isinstance(raw, list):
        return origin(_decode(each, parts[0], what) for each in raw)
    if isinstance(hint, type) and type(raw) is hint:
        return raw
    raise ValueError(f"a value of {what[:80]} has the wrong type")
