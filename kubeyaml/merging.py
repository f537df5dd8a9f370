"""Merge mappings into others by the key `<<`, as go-yaml does."""

from typing import Any

from kubeyaml.model import RawPlace, YamlError

# Where a RawPlace has these.
_STYLE, _INSIDE = 4, 6


class MergeKey(str):
    """A `<<` that stays a key of its mapping until the mapping ends; it is equal only to itself."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def merge(values: dict[str, Any], places: dict[str, RawPlace], base: int) -> None:
    """Replace each MergeKey by the entries of its mappings. As in go-yaml, later entries win.

    `base` is the offset of the chunk in the file.
    """
    entries = [(key, value, places[key]) for key, value in values.items()]
    values.clear()
    places.clear()
    for key, value, place in entries:
        if type(key) is not MergeKey:
            values[key], places[key] = value, place
            continue
        style, inside = place[_STYLE], place[_INSIDE]
        sources: list[tuple[Any, Any]] = [(value, place)]
        if isinstance(inside, list) and style != "alias":
            sources = list(zip(value, inside, strict=True))
        # The first mapping of a list wins, so its entries are written last.
        for source, source_place in reversed(sources):
            if type(source) is not dict:
                message = "the value of << must be a mapping or a list of mappings"
                raise YamlError(message, source_place[0] + base)
            values.update(source)
            for name, inner in source_place[_INSIDE].items():
                start, end, key_start, key_end, own_style, _, children = inner
                places[name] = (start, end, key_start, key_end, own_style, "merge", children)
