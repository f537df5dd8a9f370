"""The types of the fields that rules read, and where an object has other types."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from rules.base.json_values import Path, pointer
from rules.objects.container import POD_SPEC, PodLayout

# {} stands for an object, [] for a list, [x] for a list of x.
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
# Field types as they are quickest to walk: the key of each field, its type, the types inside.
CompiledTypes: TypeAlias = tuple[tuple[str, Any, Any], ...]
_TYPE_NAMES = {str: "text", int: "a number", float: "a number", bool: "a boolean", list: "a list"}


@cache
def field_types_of(layout: PodLayout) -> Mapping[str, Any]:
    """The types of the fields that rules read from a pod with this layout."""
    types: dict[str, Any] = {**POD, **dict.fromkeys(layout.single_containers, _CONTAINER)}
    if layout.is_container:
        types |= {**_CONTAINER, layout.resources_field: _RESOURCES}
    for field in filter(None, (layout.gpu_field, layout.variables_field)):
        types[field] = {}
    for path, _ in layout.container_lists:
        inner = types
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = [_CONTAINER]
    return types


def _compile_types(types: Mapping[str, Any]) -> CompiledTypes:
    inside = {key: inner[0] if isinstance(inner, list) else inner for key, inner in types.items()}
    return tuple((key, type(types[key]), _compile_types(inner)) for key, inner in inside.items())


@cache
def compiled_field_types(layout: PodLayout) -> CompiledTypes:
    """`field_types_of(layout)` in the form that `conforms_to_types` takes."""
    return _compile_types(field_types_of(layout))


COMPILED_POD, COMPILED_METADATA = compiled_field_types(POD_SPEC), _compile_types(METADATA)
_OBJECT_TYPES = frozenset({dict})


def conforms_to_types(value: Any, types: CompiledTypes) -> bool:
    """Return whether `value` is an object without `type_errors`, which take longer to find.

    False may also mean an unusual value without errors.
    """
    if type(value) is not dict:
        return False
    for key, kind, inside in types:
        child = value.get(key)
        if child is None:
            continue
        if type(child) is not kind:
            return False
        if kind is list:
            if not _OBJECT_TYPES.issuperset(map(type, child)):
                return False
            for item in child if inside else ():
                if not conforms_to_types(item, inside):
                    return False
        elif inside and not conforms_to_types(child, inside):
            return False
    return True


def type_errors(value: Any, types: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Each place in `value`, itself at `path`, that has the wrong type, with a message.

    null is the same as an absent field.
    """
    if value is None:
        return
    if not isinstance(value, type(types)):
        wanted = "an object" if isinstance(types, dict) else "a list"
        found = "an object" if isinstance(value, dict) else _TYPE_NAMES.get(type(value), "text")
        yield path, f"{pointer(path)} should be {wanted} and is {found}"
    elif not types:
        return
    elif isinstance(value, list):
        inner = types[0]
        for index, item in enumerate(value):
            if inner or not isinstance(item, dict):
                yield from type_errors(item, inner, (*path, index))
    else:
        for key, inner in types.items():
            child = value.get(key)
            if child is not None and (inner or not isinstance(child, type(inner))):
                yield from type_errors(child, inner, (*path, key))
