"""Plain JSON data, places in it, and edits to it. Knows nothing of Kubernetes.

An `Edit` is a wish about a document that somebody has read. `apply` turns a batch of
wishes into a new document and the JSON Patch (RFC 6902) that leads there. It is stricter
than the patch library of the Kubernetes API server: what does not fit is an error here,
never a surprise there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

# `Any` inside containers: a recursive alias would force a cast at every step into a manifest.
Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None
Path: TypeAlias = tuple[str | int, ...]
Operation: TypeAlias = dict[str, Any]


class EditError(ValueError):
    """An edit that does not fit the document it was made for."""


class Edit(NamedTuple):
    """One wish: put `value` at `path`, append it to the list at `path`, or remove `path`."""

    kind: Literal["put", "append", "remove"]
    path: Path
    value: Any = None


def put(path: Path, value: Json) -> Edit:
    """Set the member of an object, or replace an element of a list, making missing parents."""
    return Edit("put", path, value)


def append(path: Path, value: Json) -> Edit:
    """Add `value` at the end of the list at `path`, making the list and its parents if missing."""
    return Edit("append", path, value)


def remove(path: Path) -> Edit:
    """Take away the member or element at `path`, which must exist."""
    return Edit("remove", path)


def at(document: Json, path: Path) -> Json:
    """What stands at `path`; KeyError, IndexError or TypeError if nothing does."""
    node: Any = document
    for step in path:
        node = node[step]
    return node  # type: ignore[no-any-return]  # narrowed by nothing but the caller's knowledge


def pointer(path: Path) -> str:
    """The JSON Pointer (RFC 6901) of `path`."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def apply(document: Json, edits: Iterable[Edit]) -> tuple[Json, list[Operation]]:
    """A new document with all `edits` made, and the JSON Patch operations in order.

    The edits speak of `document` as it is given: elements keep their indices because
    removals come last, from the back. Untouched parts of the result are the same objects
    as in `document`, which itself stays as it was. Raises EditError and changes nothing if
    an edit does not fit or two of them concern the same place.
    """
    batch = list(edits)
    for edit in batch:
        _refuse_misfit(document, edit)
    _refuse_overlaps(batch)
    working = _Working(document)
    for edit in batch:
        if edit.kind != "remove":
            working.write(edit)
    for edit in sorted((e for e in batch if e.kind == "remove"), key=_sort_key, reverse=True):
        working.remove(edit.path)
    return working.document, working.operations


def _sort_key(edit: Edit) -> list[tuple[bool, int, str]]:
    return [(isinstance(s, str), s if isinstance(s, int) else 0, str(s)) for s in edit.path]


def _refuse_overlaps(batch: Sequence[Edit]) -> None:
    written = [e.path for e in batch if e.kind != "append"]
    taken = set(written)
    if len(taken) < len(written):
        raise EditError("two edits write to one place")
    for edit in batch:
        own = edit.path if edit.kind == "append" else edit.path[:-1]
        if any(own[:depth] in taken for depth in range(len(own) + 1)):
            raise EditError(f"an edit at {pointer(edit.path)} lies inside another edit")


def _refuse_misfit(document: Json, edit: Edit) -> None:
    """Every element must be there from the start: what the batch appends has no index yet."""
    if not edit.path and not (edit.kind == "append" and isinstance(document, list)):
        raise EditError("the document itself cannot be replaced or removed")
    node: Any = document
    for step in edit.path:
        if isinstance(node, dict) and isinstance(step, str):
            node = node.get(step)
        elif isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node):
            node = node[step]
        elif node is not None or isinstance(step, int):
            raise EditError(f"{pointer(edit.path)} does not fit the document")


class _Working:
    """A document in the making; every node is copied at most once."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.operations: list[Operation] = []
        self._copied: set[int] = set()

    def write(self, edit: Edit) -> None:
        value = edit.value
        if edit.kind == "append":
            target = self._own(edit.path, edit.path)
            if isinstance(target, list):
                target.append(value)
                self._record("add", (*edit.path, "-"), value)
                return
            if target is not None:
                raise EditError(f"{pointer(edit.path)} is not a list")
            value = [value]
        self._put(edit.path, value)

    def remove(self, path: Path) -> None:
        parent, last = self._own(path[:-1], path), path[-1]
        try:
            del parent[last]
        except (LookupError, TypeError) as error:
            raise EditError(f"{pointer(path)} does not exist") from error
        self._record("remove", path)

    def _put(self, path: Path, value: Json) -> None:
        # The operation stands at the highest parent that is missing and carries the rest.
        depth = next(
            (d for d in range(1, len(path)) if self._own(path[:d], path) is None), len(path)
        )
        for step in reversed(path[depth:]):  # all names, or the edit would be a misfit
            value = {str(step): value}
        parent, last = self._own(path[: depth - 1], path), path[depth - 1]
        if isinstance(parent, dict) and isinstance(last, str):
            kind = "add" if parent.get(last) is None else "replace"
        elif isinstance(parent, list) and isinstance(last, int):
            kind = "replace"
        else:
            raise EditError(f"{pointer(path)} has no place for a value")
        parent[last] = value
        self._record(kind, path[:depth], value)

    def _own(self, path: Path, whole: Path) -> Any:
        """The node at `path`, copied on the way so that it may be changed; None if missing."""
        node = self.document = self._copy(self.document)
        for step in path:
            if isinstance(node, dict) and isinstance(step, str):
                child = node.get(step)
            elif isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node):
                child = node[step]
            else:
                raise EditError(f"{pointer(whole)} does not fit the document")
            if isinstance(child, (dict, list)):
                child = node[step] = self._copy(child)
            elif child is None:
                return None
            node = child
        return node

    def _copy(self, node: Json) -> Any:
        if not isinstance(node, (dict, list)) or id(node) in self._copied:
            return node
        copy = node.copy()
        self._copied.add(id(copy))
        return copy

    def _record(self, kind: str, path: Path, *value: Json) -> None:
        operation: Operation = {"op": kind, "path": pointer(path)}
        if value:
            operation["value"] = value[0]
        self.operations.append(operation)
