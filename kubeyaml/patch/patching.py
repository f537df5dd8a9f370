"""Apply the operations of a JSON Patch to the text of a document, one after the other."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubeyaml.model import Chunk, Document, Json, Path, YamlError
from kubeyaml.patch.editors import BlockEditor, FlowEditor, splice_of_renamed_key
from kubeyaml.patch.layout import Layout, layout_of
from kubeyaml.patch.model import (
    Operation,
    PatchedText,
    PatchError,
    Splice,
    are_identical,
    path_of,
    value_at,
)
from kubeyaml.patch.source_text import (
    SourceText,
    ends_in_block_scalar,
    place_at,
    refuse_anchors_inside,
    refuse_noted_value,
    refuse_placeholders,
    refuse_template_directives,
)
from kubeyaml.reader import read


def narrowed_operations(operation: Operation, document: Json) -> Iterator[Operation]:
    """`operation`, or operations on single entries if it replaces a collection by one like it.

    What the two collections have in common then stays as it is.
    """
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
        if not are_identical(old, new):
            yield {"op": "replace", "path": path, "value": new}
        return
    before, after = _entries_by_key(old), _entries_by_key(new)
    for key in before:
        if key in after:
            yield from _differences(f"{path}/{_pointer_step(key)}", before[key], after[key])
    for key in after:
        if key not in before:
            yield {"op": "add", "path": f"{path}/{_pointer_step(key)}", "value": after[key]}
    for key in reversed(before):
        if key not in after:
            yield {"op": "remove", "path": f"{path}/{_pointer_step(key)}"}


def _entries_by_key(value: Any) -> dict[str | int, Any]:
    return value if isinstance(value, dict) else dict(enumerate(value))


def _pointer_step(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


# YAML has more line breaks than those at which text is edited.
_OTHER_LINE_BREAK_PATTERN: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
# So many times the given document may be read, with 1000 characters for what is added to it.
_MAX_READINGS: Final = 50


def patch(
    text: str, operations: Sequence[Operation], expected: Json, document: Document | None = None
) -> PatchedText:
    """The text of one document after `operations`, which turn its value into `expected`.

    `document` is what has been read from `text`, in which there may be others as well.
    Raises PatchError if an operation cannot be made without touching something else, and if the
    new text would not be read as `expected`. Raises YamlError if `text` cannot be read.
    """
    patching = _Patching(text, document or _read(text))
    for operation in operations:
        patching.apply(operation)
    patching.apply_waiting_splices()
    if not are_identical(patching.document.value, expected):
        if patching.ends_in_block_scalar:
            raise PatchError("the file ends in a block scalar without a newline; add a newline")
        raise PatchError(patching.explain("the new text would not be read as the fixed object"))
    changed = patching.source.text_between(patching.source.start, patching.source.end)
    # Without any difference, the document is still the given one, with other offsets.
    return PatchedText(
        changed, _read(changed) if patching.document is document else patching.document
    )


class _Patching:
    """A text between operations.

    It is read again before an operation that depends on others. New scalars in the place of others
    and new entries below existing ones do not: they can all be put into the same text.
    """

    def __init__(self, text: str, document: Document) -> None:
        self.document = document
        self.source = SourceText(text, document.start, document.end)
        self._given = self.source
        refuse_template_directives(self.source)
        self.ends_in_block_scalar = ends_in_block_scalar(self.source, document.place)
        self._layout = layout_of(self.source, document)
        self._path: Path = ()
        # What waits: the splices with the depth of their entry, and the paths that they change.
        self._splices: list[tuple[int, Splice]] = []
        self._changed: set[str] = set()
        self._above_changed: set[str] = set()
        self._may_read = _MAX_READINGS * (document.end - document.start + 1000)

    def apply(self, given: Operation) -> None:
        """Make one operation, at once or with the next reading."""
        pointer = given["path"]
        above = _parent_pointers(pointer)
        touched = (pointer, given.get("from", pointer), *above)
        if pointer in self._above_changed or not self._changed.isdisjoint(touched):
            self.apply_waiting_splices()
        for operation in narrowed_operations(given, self.document.value):
            changed_at: str = operation.get("from") or operation["path"]
            self._path = path_of(changed_at, self.document.value)
            try:
                waits = self._can_wait(operation)
                if not waits:
                    self.apply_waiting_splices()
                    self._path = path_of(changed_at, self.document.value)
                splices = _splices_of(
                    operation, self._path, self.source, self.document, self._layout
                )
                refuse_placeholders(self.source, splices)
            except PatchError as error:
                raise PatchError(error.reason, self._path) from None
            self._splices += [(len(self._path), splice) for splice in splices]
            self._changed.update((pointer.removesuffix("/-"), changed_at))
            if self._fills_empty_collection(operation):
                self._changed.add(above[-1])
            self._above_changed.update(above)
            if not waits:
                self.apply_waiting_splices()

    def apply_waiting_splices(self) -> None:
        """Make the splices that wait."""
        if not self._splices:
            return
        # Where entries of several collections go below one line, the innermost collection is first.
        by_depth = sorted(self._splices, key=lambda waiting: -waiting[0])
        text = self.source.with_splices(splice for _, splice in by_depth)
        self._splices, self._changed, self._above_changed = [], set(), set()
        self._may_read -= len(text)
        if self._may_read < 0:
            reason = "too many edits in one document; split it, or use --rule to make fewer"
            raise PatchError(reason, self._path)
        try:
            self.document = _read(text)
        except YamlError as error:
            reason = self.explain(f"the new text would not be YAML: {error}")
            raise PatchError(reason, self._path) from None
        self.source = SourceText(text)

    def explain(self, reason: str) -> str:
        """Return what in the given text explains that the new one is wrong; else `reason`."""
        given = self._given
        if _OTHER_LINE_BREAK_PATTERN.search(given.text, given.start, given.end):
            return "the text has line breaks other than newlines, such as a carriage return alone"
        return reason

    def _can_wait(self, operation: Operation) -> bool:
        """Return whether the operation changes nothing on which the plan of another one depends."""
        if operation["op"] == "move":
            return True
        if operation["op"] == "add":
            return self._is_new_behind_others()
        if operation["op"] == "remove" or isinstance(operation["value"], dict | list):
            return False
        old = place_at(self.document, self._path)
        return old.inside is None and old.style != "block" and old.start < old.end

    def _is_new_behind_others(self) -> bool:
        """Return whether the path is that of a new entry behind the others of a collection."""
        *parents, key = self._path
        value = value_at(self.document.value, parents)
        place_at(self.document, tuple(parents))
        return key not in value if isinstance(value, dict) else key == len(value)

    def _fills_empty_collection(self, operation: Operation) -> bool:
        """Return whether the operation rewrites an empty collection, so others have no place."""
        return operation["op"] == "add" and not value_at(self.document.value, self._path[:-1])


def _parent_pointers(pointer: str) -> list[str]:
    """The pointers of all values in which that at `pointer` is."""
    parts = pointer.split("/")
    return ["/".join(parts[:stop]) for stop in range(1, len(parts))]


def _read(text: str) -> Document:
    document = read(Chunk(text))
    if document is None:
        raise PatchError("the text has no document")
    return document


def _splices_of(
    operation: Operation, path: Path, source: SourceText, document: Document, layout: Layout
) -> list[Splice]:
    """The splices that make `operation`."""
    *parents, key = path
    place, value = place_at(document, tuple(parents)), value_at(document.value, parents)
    editor = _editor(source, place, layout)
    exists = operation["op"] != "add" or (isinstance(value, dict) and key in value)
    if not exists:
        return editor.add(key, operation["value"])
    inside: Any = place.inside
    if operation["op"] == "move":
        if inside[key].note == "merge":
            refuse_noted_value(inside[key])
        new_name = str(path_of(operation["path"], document.value)[-1])
        return [splice_of_renamed_key(source, inside[key], new_name, layout)]
    refuse_anchors_inside(inside[key])
    if operation["op"] != "remove":
        refuse_noted_value(inside[key])
        return editor.replace(key, operation["value"])
    if inside[key].note in {"alias", "merge"}:
        refuse_noted_value(inside[key])
    if len(value) > 1 or place.style == "flow":
        return editor.remove(key)
    if not parents:
        raise PatchError("it is the only entry of the document")
    outer = _editor(source, place_at(document, tuple(parents[:-1])), layout)
    return outer.replace(parents[-1], type(value)(), discard=True)


def _editor(source: SourceText, place: Any, layout: Layout) -> BlockEditor | FlowEditor:
    return (FlowEditor if place.style == "flow" else BlockEditor)(source, place, layout)
