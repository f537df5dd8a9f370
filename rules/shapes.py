"""The types of the fields that rules read, and where an object has others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from rules.document import Path, pointer
from rules.layout import POD_SPEC, Layout

# {} is an object, [] a list, [x] a list of x.
_RESOURCES: Mapping[str, Any] = {"limits": {}, "requests": {}, "claims": [{}]}
_CONTAINER: Mapping[str, Any] = {
    "env": [{}],
    "envFrom": [{}],
    "volumeMounts": [{}],
    "securityContext": {},
    "resources": _RESOURCES,
}
POD: Mapping[str, Any] = {
    "volumes": [{}],
    "tolerations": [{}],
    "topologySpreadConstraints": [{}],
    "nodeSelector": {},
    "affinity": {},
}
METADATA: Mapping[str, Any] = {"annotations": {}, "labels": {}}
# A shape as it is quickest to walk: the key of each field, its type and what is inside.
Fields: TypeAlias = tuple[tuple[str, Any, Any], ...]
_KINDS = {str: "text", int: "a number", float: "a number", bool: "a boolean", list: "a list"}


@cache
def shape_of(layout: Layout) -> Mapping[str, Any]:
    """The types of what rules read from a pod that is laid out so."""
    shape: dict[str, Any] = {**POD, **dict.fromkeys(layout.singles, _CONTAINER)}
    if layout.itself:
        shape |= {**_CONTAINER, layout.resources: _RESOURCES}
    if layout.gpu_field:
        shape[layout.gpu_field] = {}
    for path, _ in layout.lists:
        inner = shape
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = [_CONTAINER]
    return shape


def _fields(shape: Mapping[str, Any]) -> Fields:
    insides = {key: inner[0] if isinstance(inner, list) else inner for key, inner in shape.items()}
    return tuple((key, type(shape[key]), _fields(inner)) for key, inner in insides.items())


@cache
def fields_of(layout: Layout) -> Fields:
    """The fields of `shape_of(layout)`."""
    return _fields(shape_of(layout))


POD_FIELDS, METADATA_FIELDS = fields_of(POD_SPEC), _fields(METADATA)
_OBJECTS = frozenset({dict})


def conforms(value: Any, fields: Fields) -> bool:
    """Whether the object `value` certainly has no `differences`, which are long in the finding."""
    if type(value) is not dict:
        return False
    for key, kind, inside in fields:
        child = value.get(key)
        if child is None:
            continue
        if type(child) is not kind:
            return False
        if kind is list:
            if not _OBJECTS.issuperset(map(type, child)):
                return False
            for item in child if inside else ():
                if not conforms(item, inside):
                    return False
        elif inside and not conforms(child, inside):
            return False
    return True


def differences(value: Any, shape: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Where `value`, which stands at `path`, is not of `shape`; null is nothing, which is fine."""
    if value is None:
        return
    if not isinstance(value, type(shape)):
        wanted = "an object" if isinstance(shape, dict) else "a list"
        found = "an object" if isinstance(value, dict) else _KINDS.get(type(value), "text")
        yield path, f"{pointer(path)} should be {wanted} and is {found}"
    elif not shape:
        return
    elif isinstance(value, list):
        inner = shape[0]
        for index, item in enumerate(value):
            if inner or not isinstance(item, dict):
                yield from differences(item, inner, (*path, index))
    else:
        for key, inner in shape.items():
            child = value.get(key)
            if child is not None and (inner or not isinstance(child, type(inner))):
                yield from differences(child, inner, (*path, key))
