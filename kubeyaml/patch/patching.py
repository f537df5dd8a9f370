"""Apply the operations of a JSON Patch to the text of a document, one after the other."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kubeyaml.model import Chunk, Document, Json, Path, YamlError
from kubeyaml.patch.block import BlockEditor
from kubeyaml.patch.flow import FlowEditor
from kubeyaml.patch.look import look_of
from kubeyaml.patch.model import Operation, Patched, PatchError, Splice
from kubeyaml.patch.refusals import (
    place_at,
    refuse_anchors_inside,
    refuse_conditions,
    refuse_placeholders,
    refuse_shared,
)
from kubeyaml.patch.rendering import Look
from kubeyaml.patch.source_text import SourceText
from kubeyaml.reader import read


def patch(text: str, operations: Sequence[Operation], expected: Json) -> Patched:
    """The text of one document after `operations`, which turn its value into `expected`.

    Raises PatchError if an operation cannot be made without touching something else, and if the
    new text would not be read as `expected`. Raises YamlError if `text` cannot be read.
    """
    document = read(Chunk(text))
    if document is None:
        raise PatchError("the text has no document")
    source = SourceText(text)
    refuse_conditions(source)
    look = look_of(source, document)
    for given in operations:
        for operation in _narrowed(given, document.value):
            path = _path(operation["path"], document.value)
            try:
                splices = _plan(operation, path, source, document, look)
                refuse_placeholders(source, splices)
                source = SourceText(source.spliced(splices))
                document = _read_again(source.text)
            except PatchError as error:
                raise PatchError(error.reason, path) from None
    if not _identical(document.value, expected):
        raise PatchError("the new text would not be read as the fixed object")
    return Patched(source.text, document)


def _plan(
    operation: Operation, path: Path, source: SourceText, document: Document, look: Look
) -> list[Splice]:
    """The splices that make `operation`."""
    *parents, key = path
    place, value = place_at(document, tuple(parents)), _value_at(document.value, parents)
    editor = _editor(source, place, look)
    exists = operation["op"] != "add" or (isinstance(value, dict) and key in value)
    if not exists:
        return editor.add(key, operation["value"])
    inside: Any = place.inside
    refuse_anchors_inside(inside[key])
    if operation["op"] != "remove":
        refuse_shared(inside[key])
        return editor.replace(key, operation["value"])
    if inside[key].note in {"alias", "merge"}:
        refuse_shared(inside[key])
    if len(value) > 1 or place.style == "flow":
        return editor.remove(key)
    if not parents:
        raise PatchError("it is the only entry of the document")
    outer = _editor(source, place_at(document, tuple(parents[:-1])), look)
    return outer.replace(parents[-1], type(value)(), discard=True)


def _editor(source: SourceText, place: Any, look: Look) -> BlockEditor | FlowEditor:
    return (FlowEditor if place.style == "flow" else BlockEditor)(source, place, look)


def _narrowed(operation: Operation, document: Json) -> Iterator[Operation]:
    """`operation`, or operations on single entries if it replaces a collection by one like it."""
    path, new = operation["path"], operation.get("value")
    old: Any = None
    if operation["op"] == "replace":
        old = _value_at(document, _path(path, document))
    if not (old and new and type(old) is type(new) and isinstance(old, dict | list)):
        yield operation
        return
    yield from _differences(path, old, new)


def _differences(path: str, old: Any, new: Any) -> Iterator[Operation]:
    """The operations that turn `old`, which is at `path`, into `new`."""
    if not (old and new and type(old) is type(new) and isinstance(old, dict | list)):
        if not _identical(old, new):
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


def _path(pointer: str, document: Json) -> Path:
    """The steps of a JSON Pointer in `document`; `-` is the index behind the last item."""
    node: Any = document
    path: list[str | int] = []
    for part in pointer.split("/")[1:]:
        step: str | int = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            step = len(node) if step == "-" else int(step)
        path.append(step)
        is_there = step in node if isinstance(node, dict) else step < len(node)  # type: ignore[operator]
        node = node[step] if is_there else None
    return tuple(path)


def _value_at(document: Json, path: Sequence[str | int]) -> Any:
    node: Any = document
    for step in path:
        node = node[step]
    return node


def _read_again(text: str) -> Document:
    try:
        document = read(Chunk(text))
    except YamlError as error:
        raise PatchError(f"the new text would not be YAML: {error}") from None
    if document is None:
        raise PatchError("the new text would be empty")
    return document


def _identical(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON; 1, 1.0 and true differ, the order of keys does not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
