"""JSON values: paths in them, edits to them, and reading those of unknown structure.

Nothing here depends on Kubernetes. An `Edit` is a requested change to one version of a document.
`apply` makes a batch of edits and returns the new document and the JSON Patch (RFC 6902) that
produces it. It is stricter than the patch library of the Kubernetes API server: an edit that does
not fit the document raises EditError here, so the API server never receives it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, NamedTuple, TypeAlias

# `Any` inside lists and objects: a recursive alias would need a cast at every step of a path.
Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None
Path: TypeAlias = tuple[str | int, ...]
Operation: TypeAlias = dict[str, Any]


class EditError(ValueError):
    """An edit that does not fit the document it was made for."""


class Edit(NamedTuple):
    """One change: put `value` at `path`, append it to the list at `path`, or remove `path`.

    To rename gives the member at `path` the name `value`, which no other member of its object has.
    """

    kind: Literal["put", "append", "remove", "rename"]
    path: Path
    value: Any = None


def put(path: Path, value: Json) -> Edit:
    """An edit that sets a member of an object, with missing parents, or replaces an element."""
    return Edit("put", path, value)


def append(path: Path, value: Json) -> Edit:
    """An edit that appends `value` to the list at `path`, which `apply` creates if missing."""
    return Edit("append", path, value)


def remove(path: Path) -> Edit:
    """An edit that removes the member or element at `path`, which must exist.

    If the object or list around it becomes empty, that is removed too, and so on upwards. Members
    of the document itself, such as `spec`, stay.
    """
    return Edit("remove", path)


def rename(path: Path, name: str) -> Edit:
    """An edit that gives the member at `path`, which must exist, the new `name`."""
    return Edit("rename", path, name)


def value_at(document: Json, path: Path) -> Json:
    """The value at `path`. Raises KeyError, IndexError or TypeError if there is none."""
    node: Any = document
    for step in path:
        node = node[step]
    return node  # type: ignore[no-any-return]  # only the caller knows the type


def find_value(document: Json, path: Path) -> Json:
    """The value at `path`, or None if there is none."""
    try:
        return value_at(document, path)
    except (LookupError, TypeError):
        return None


def values_at(raw: Any, pattern: Path) -> list[tuple[Path, Any]]:
    """The values at every path that `pattern` stands for, each with its path.

    In the pattern, `*` stands for every object in a list. A value that is not there is None.
    """
    found: list[tuple[Path, Any]] = [((), raw)]
    for step in pattern:
        if step == "*":
            found = [((*path, i), item) for path, value in found for i, item in as_objects(value)]
        else:
            found = [((*path, step), as_object(value).get(str(step))) for path, value in found]
    return found


def pointer(path: Path) -> str:
    """The JSON Pointer (RFC 6901) of `path`."""
    steps = list(map(str, path))
    plain = "/".join(("", *steps))
    if "~" in plain or plain.count("/") > len(path):
        return "/".join(["", *[step.replace("~", "~0").replace("/", "~1") for step in steps]])
    return plain


def apply(document: Json, edits: Iterable[Edit]) -> tuple[Json, list[Operation]]:
    """A new document with all `edits` made, and the JSON Patch operations in order.

    All paths refer to `document` as given: `apply` makes removals last and from the end, so the
    indices of list elements stay valid. `document` is not changed; unchanged parts of the result
    are the same Python objects as in `document`. Raises EditError if an edit does not fit the
    document or if two edits change the same place.
    """
    batch = list(edits)
    for edit in batch:
        _check_fits(document, edit)
    if len(batch) > 1:
        _check_disjoint(batch)
    working = _PatchBuilder(document)
    removals = []
    for edit in batch:
        if edit.kind == "remove":
            removals.append(edit)
        elif edit.kind == "rename":
            working.rename(edit.path, edit.value)
        else:
            working.write(edit)
    for edit in sorted(removals, key=_sort_key, reverse=True):
        working.remove(edit.path)
    return working.document, working.operations


def _sort_key(edit: Edit) -> list[tuple[bool, int, str]]:
    return [(isinstance(s, str), s if isinstance(s, int) else 0, str(s)) for s in edit.path]


def _check_disjoint(batch: Sequence[Edit]) -> None:
    written = [e.path for e in batch if e.kind != "append"]
    written += [_new_path(e) for e in batch if e.kind == "rename"]
    places = set(written)
    if len(places) < len(written):
        raise EditError("two edits write to one place")
    depths = {len(path) for path in places}
    for edit in batch:
        target = edit.path if edit.kind == "append" else edit.path[:-1]
        if any(depth <= len(target) and target[:depth] in places for depth in depths):
            raise EditError(f"an edit at {pointer(edit.path)} lies inside another edit")


def _new_path(renaming: Edit) -> Path:
    return (*renaming.path[:-1], renaming.value)


def _check_fits(document: Json, edit: Edit) -> None:
    """Raise EditError if `edit` does not fit `document` as given.

    Its path must not lead through an element that another edit of the batch appends.
    """
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
    """A document to which edits are applied. It copies each node at most once, before a change."""

    def __init__(self, document: Json) -> None:
        self.operations: list[Operation] = []
        self._root = [document]  # a list, so that the document itself has a parent
        self._copied: set[int] = set()

    @property
    def document(self) -> Json:
        """The document as it is now."""
        return self._root[0]

    def write(self, edit: Edit) -> None:
        path, value = edit.path, edit.value
        parent, step, depth = self._copied_parent(path)
        existing = parent[step] if isinstance(parent, list) else parent.get(step)
        if edit.kind == "append":
            if isinstance(existing, list):
                if id(existing) not in self._copied:
                    existing = parent[step] = existing.copy()
                    self._copied.add(id(existing))
                existing.append(value)
                self._record("add", (*path, "-"), value)
                return
            if existing is not None:
                raise EditError(f"{pointer(path)} is not a list")
            value = [value]
        # One operation adds the highest missing parent, with everything below it. The missing steps
        # are names, because `_check_fits` refuses a missing list element.
        for missing in reversed(path[depth:]):
            value = {str(missing): value}
        parent[step] = value
        is_new = existing is None and isinstance(parent, dict)
        self._record("add" if is_new else "replace", path[:depth], value)

    def remove(self, path: Path) -> None:
        parent, step = self._copied_existing_parent(path)
        del parent[step]
        while not parent and len(path) > 2 and isinstance(path[-2], str):  # noqa: PLR2004
            path = path[:-1]
            parent, step, _ = self._copied_parent(path)
            del parent[step]
        self._record("remove", path)

    def rename(self, path: Path, name: str) -> None:
        parent, step = self._copied_existing_parent(path)
        if not isinstance(parent, dict) or name in parent:
            raise EditError(f"{pointer(path)} cannot be renamed to {name}")
        members = [(name if key == step else key, value) for key, value in parent.items()]
        parent.clear()
        parent.update(members)
        new = pointer((*path[:-1], name))
        self.operations.append({"op": "move", "from": pointer(path), "path": new})

    def _copied_existing_parent(self, path: Path) -> tuple[Any, Any]:
        """The parent of the value at `path`, which must exist, and the step to the value."""
        parent, step, depth = self._copied_parent(path)
        if depth < len(path) or (isinstance(parent, dict) and step not in parent):
            raise EditError(f"{pointer(path)} does not exist")
        return parent, step

    def _copied_parent(self, path: Path) -> tuple[Any, Any, int]:
        """The parent of the value at `path`, the step from it to the value, and the step's depth.

        If a part of `path` is missing, they are those of the first missing part. All nodes on the
        way are copies, so the caller may change them.
        """
        node: Any = self._root
        for depth, step in enumerate((0, *path)):
            try:
                child = node.get(step) if isinstance(node, dict) else node[step]
            except (IndexError, TypeError) as error:
                raise EditError(f"{pointer(path)} does not fit the document") from error
            if depth == len(path) or (child is None and depth):  # at depth 0 null is the document
                break
            if id(child) not in self._copied and isinstance(child, (dict, list)):
                child = node[step] = child.copy()
                self._copied.add(id(child))
            node = child
        return node, step, depth

    def _record(self, kind: str, path: Path, *value: Json) -> None:
        operation: Operation = {"op": kind, "path": pointer(path)}
        if value:
            operation["value"] = value[0]
        self.operations.append(operation)


# Values of unknown structure. One of the wrong type counts as absent, so rules need not check types
# before they read.

# A text as a JSON string, much faster than `json.dumps`.
quote = encode_basestring_ascii


def as_object(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects in the list `value` with their indices; empty if `value` is no list."""
    if not isinstance(value, list):
        return []
    # The tuples of `enumerate`: making others takes a third of the time again.
    return [entry for entry in enumerate(value) if isinstance(entry[1], dict)]


def count_values(raw: Any) -> int:
    """Return how many values there are in an object or a list, at every depth."""
    waiting, count = [raw], 0
    while waiting:
        node = waiting.pop()
        count += len(node)
        children = node.values() if isinstance(node, dict) else node
        waiting += [child for child in children if isinstance(child, (dict, list))]
    return count


def as_text(value: Any) -> str:
    """`value` if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def as_texts(value: Any) -> list[str]:
    """The texts of a list, of which others are empty; none if `value` is no list."""
    return [*map(as_text, value)] if isinstance(value, list) else []


def display(value: Any, limit: int = 60) -> str:
    """The tenant's `value` for a message: quoted, on one line, at most `limit` characters."""
    # Quoting makes a text longer, never shorter, so the rest would be cut off anyway.
    is_text = isinstance(value, str)
    quoted = quote(value[:limit]) if is_text else json.dumps(value, default=str)
    return quoted if len(quoted) <= limit else f'{quoted[: limit - 4]}…"'


_MAX_LISTED = 3


def display_names(kind: str, names: Sequence[str]) -> str:
    """The first few of the tenant's `names` for a message: `the queues "a", "b" and 2 more`."""
    named = ", ".join(map(display, names[:_MAX_LISTED]))
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"the {kind if len(names) == 1 else f'{kind}s'} {named}{more}"
