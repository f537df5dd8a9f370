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


def value_at(document: Json, path: Path) -> Json:
    """What stands at `path`; KeyError, IndexError or TypeError if nothing does."""
    node: Any = document
    for step in path:
        node = node[step]
    return node  # type: ignore[no-any-return]  # narrowed by nothing but the caller's knowledge


def find_value(document: Json, path: Path) -> Json:
    """What stands at `path`, or None."""
    try:
        return value_at(document, path)
    except (LookupError, TypeError):
        return None


def pointer(path: Path) -> str:
    """The JSON Pointer (RFC 6901) of `path`."""
    plain = "/".join(("", *map(str, path)))
    if "~" not in plain and plain.count("/") == len(path):
        return plain
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
        _check_fits(document, edit)
    if len(batch) > 1:
        _check_disjoint(batch)
    working = _PatchBuilder(document)
    for edit in batch:
        if edit.kind != "remove":
            working.write(edit)
    removals = [edit for edit in batch if edit.kind == "remove"]
    for edit in sorted(removals, key=_sort_key, reverse=True):
        working.remove(edit.path)
    return working.document, working.operations


def _sort_key(edit: Edit) -> list[tuple[bool, int, str]]:
    return [(isinstance(s, str), s if isinstance(s, int) else 0, str(s)) for s in edit.path]


def _check_disjoint(batch: Sequence[Edit]) -> None:
    written = [e.path for e in batch if e.kind != "append"]
    taken = set(written)
    if len(taken) < len(written):
        raise EditError("two edits write to one place")
    depths = {len(path) for path in taken}
    for edit in batch:
        own = edit.path if edit.kind == "append" else edit.path[:-1]
        if any(depth <= len(own) and own[:depth] in taken for depth in depths):
            raise EditError(f"an edit at {pointer(edit.path)} lies inside another edit")


def _check_fits(document: Json, edit: Edit) -> None:
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


class _PatchBuilder:
    """A document in the making; every node is copied at most once."""

    def __init__(self, document: Json) -> None:
        self.operations: list[Operation] = []
        self._root = [document]  # so that the document too stands in something
        self._copied: set[int] = set()

    @property
    def document(self) -> Json:
        """The document as it is now."""
        return self._root[0]

    def write(self, edit: Edit) -> None:
        path, value = edit.path, edit.value
        holder, step, depth = self._reach(path)
        there = holder[step] if isinstance(holder, list) else holder.get(step)
        if edit.kind == "append":
            if isinstance(there, list):
                holder[step] = self._copy(there)
                holder[step].append(value)
                self._record("add", (*path, "-"), value)
                return
            if there is not None:
                raise EditError(f"{pointer(path)} is not a list")
            value = [value]
        # The operation stands at the highest parent that is missing and carries the rest.
        for missing in reversed(path[depth:]):  # all names, or the edit would be a misfit
            value = {str(missing): value}
        holder[step] = value
        is_new = there is None and isinstance(holder, dict)
        self._record("add" if is_new else "replace", path[:depth], value)

    def remove(self, path: Path) -> None:
        holder, step, depth = self._reach(path)
        if depth < len(path) or (isinstance(holder, dict) and step not in holder):
            raise EditError(f"{pointer(path)} does not exist")
        del holder[step]
        self._record("remove", path)

    def _reach(self, path: Path) -> tuple[Any, Any, int]:
        """What holds the end of `path`, or its first part that is missing; by which step; how deep.

        Everything on the way is copied, so that it may be changed.
        """
        node: Any = self._root
        for depth, step in enumerate((0, *path)):
            if isinstance(node, dict) and isinstance(step, str):
                child = node.get(step)
            elif isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node):
                child = node[step]
            else:
                raise EditError(f"{pointer(path)} does not fit the document")
            if depth == len(path) or (child is None and depth):  # without a document no parts
                break
            if id(child) not in self._copied and isinstance(child, (dict, list)):
                child = node[step] = self._copy(child)
            node = child
        return node, step, depth

    def _copy(self, node: Any) -> Any:
        if id(node) in self._copied:
            return node
        copy = node.copy()
        self._copied.add(id(copy))
        return copy

    def _record(self, kind: str, path: Path, *value: Json) -> None:
        operation: Operation = {"op": kind, "path": pointer(path)}
        if value:
            operation["value"] = value[0]
        self.operations.append(operation)
