"""Find a field of a rendered object in a document that it may be from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_object
from rules.base.json_values import Path

# What names an item of a list, which patches and other resources may put at another index
_NAMES = ("name", "mountPath", "containerPath", "key")


class Fields:
    """Finds fields in documents, which must live as long as this."""

    def __init__(self) -> None:
        self._indices: dict[tuple[int, str], dict[str, int]] = {}

    def resolve(self, rendered: Any, value: Any, path: Path) -> Path:
        """The part of `path`, one in `rendered`, that `value` has: with the indices of `value`."""
        found: list[str | int] = []
        for step in path:
            if isinstance(step, int):
                is_item = isinstance(rendered, list) and step < len(rendered)
                item = rendered[step] if is_item else None
                step = self._index_of(item, value, step)  # noqa: PLW2901
                rendered = item
            else:
                rendered = as_object(rendered).get(step)
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            found.append(step)
        return tuple(found)

    def _index_of(self, item: Any, items: Any, index: int) -> int:
        """The index in `items` of the item with the name of `item`; `index` if it has no name."""
        key = next((key for key in _NAMES if isinstance(item, Mapping) and key in item), "")
        if not key or not isinstance(items, list):
            return index
        known = self._indices.get((id(items), key))
        if known is None:
            known = self._indices[id(items), key] = {}
            for number, other in enumerate(items):
                if key in as_object(other):
                    known.setdefault(repr(other[key]), number)
        return known.get(repr(item[key]), len(items))


def is_same(rendered: Any, path: Path, value: Any, found: Path) -> bool:
    """Whether the field at `found` in `value` has not been changed on the way to `rendered`."""
    for step in path[: len(found)]:
        rendered = rendered[step]
    for step in found:
        value = value[step]
    return isinstance(rendered, dict | list) or rendered == value
