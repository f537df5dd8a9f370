"""The types of the fields that rules read, and where an object has others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rules.document import Path, pointer
from rules.pod import Layout

# {} is an object, [] a list, [x] a list of x.
_RESOURCES: Mapping[str, Any] = {"limits": {}, "requests": {}, "claims": [{}]}
_CONTAINER: Mapping[str, Any] = {
    "env": [{}],
    "envFrom": [{}],
    "volumeMounts": [{}],
    "securityContext": {},
    "resources": _RESOURCES,
}
POD: Mapping[str, Any] = {"volumes": [{}], "tolerations": [{}], "nodeSelector": {}, "affinity": {}}
METADATA: Mapping[str, Any] = {"annotations": {}, "labels": {}}
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


_OBJECTS = frozenset({dict})


def conforms(value: Any, shape: Mapping[str, Any]) -> bool:
    """Whether the object `value` certainly has no `differences`, which are long in the finding."""
    if type(value) is not dict:
        return False
    for key, inner in shape.items():
        child = value.get(key)
        if child is None:
            continue
        if type(child) is not type(inner):
            return False
        if type(child) is list:
            if not _OBJECTS.issuperset(map(type, child)):
                return False
            if inner[0] and not all(conforms(item, inner[0]) for item in child):
                return False
        elif inner and not conforms(child, inner):
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
