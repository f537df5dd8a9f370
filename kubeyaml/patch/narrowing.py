"""Replace collections entry by entry, so that what they have in common stays as it is."""

from collections.abc import Iterator
from typing import Any

from kubeyaml.model import Json
from kubeyaml.patch.json_values import identical, path_of, value_at
from kubeyaml.patch.model import Operation


def narrowed(operation: Operation, document: Json) -> Iterator[Operation]:
    """`operation`, or operations on single entries if it replaces a collection by one like it."""
    path, new = operation["path"], operation.get("value")
    old: Any = None
    if operation["op"] == "replace":
        old = value_at(document, path_of(path, document))
    if not (old and new and type(old) is type(new) and isinstance(old, dict | list)):
        yield operation
        return
    yield from _differences(path, old, new)


def _differences(path: str, old: Any, new: Any) -> Iterator[Operation]:
    """The operations that turn `old`, which is at `path`, into `new`."""
    if not (old and new and type(old) is type(new) and isinstance(old, dict | list)):
        if not identical(old, new):
            yield {"op": "replace", "path": path, "value": new}
        return
    before, after = _entries(old), _entries(new)
    for key in before:
        if key in after:
            yield from _differences(f"{path}/{_escaped(key)}", before[key], after[key])
    for key in after:
        if key not in before:
            yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": after[key]}
    for key in reversed(before):
        if key not in after:
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}


def _entries(value: Any) -> dict[str | int, Any]:
    return value if isinstance(value, dict) else dict(enumerate(value))


def _escaped(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
