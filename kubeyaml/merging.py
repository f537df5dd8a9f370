"""Merge mappings into others by the key `<<`, as go-yaml does."""

from typing import Any

from kubeyaml.model import Place, YamlError


class MergeKey(str):
    """A `<<` that stays a key of its mapping until the mapping ends; it is equal only to itself."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def merge(values: dict[str, Any], places: dict[str, Place]) -> None:
    """Replace each MergeKey by the entries of its mappings. As in go-yaml, later entries win."""
    entries = [(key, value, places[key]) for key, value in values.items()]
    values.clear()
    places.clear()
    for key, value, place in entries:
        if type(key) is not MergeKey:
            values[key], places[key] = value, place
            continue
        inside: Any = place.inside
        is_list = type(value) is list and place.style != "alias"
        sources = list(zip(value, inside, strict=True)) if is_list else [(value, place)]
        # The first mapping of a list wins, so its entries are written last.
        for source, source_place in reversed(sources):
            if type(source) is not dict:
                raise YamlError(
                    "the value of << must be a mapping or a list of mappings", source_place.start
                )
            values.update(source)
            for name, inner in source_place.inside.items():
                places[name] = inner.merged()
