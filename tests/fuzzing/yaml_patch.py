"""The patcher of YAML: an edit is exact, or refused for a reason that the text gives.

The first line of an input chooses the edit of what comes below it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import jsonpatch

from kubeyaml import Document, EncodingError, YamlError, decode, read, split
from kubeyaml.patch import Operation, PatchError, patch
from kubeyaml.patch.model import are_identical
from rules.base.json_values import pointer

# With these the patch says that it has made a mistake itself, or knows no reason.
FAULTS = ("the new text would not be",)
_VALUES: list[Any] = [
    *(1, 1.5, True, None, "", "x", "yes", "two words", "a: b", "#no", "- x", "---", "multi\nline"),
    *([], {}, ["a"], {"k": "v", "l": [{"m": 1}]}, [[1], {}], [{"name": "n"}], {"a/b~c": {"": 1}}),
]
_KEYS = ["new", "a b", "nvidia.com/gpu", "1", '"', ""]
_MAX_PLACES = 1_000


def check(data: bytes) -> None:
    """Edit the first document of the text in `data` at a place."""
    choice, _, content = data.partition(b"\n")
    try:
        text = decode(content)
        document = next((d for chunk in split(text) if (d := read(chunk))), None)
    except (EncodingError, YamlError):
        return
    places = list(_places(document.value)) if document else []
    if document is None or not places or document.duplicates:
        return
    operation = _operation(random.Random(choice), places)  # noqa: S311  # not for secrets
    expected = jsonpatch.apply_patch(copy.deepcopy(document.value), [copy.deepcopy(operation)])
    try:
        made = patch(text, [operation], expected, document)
    except PatchError as error:
        assert error.reason
        assert not error.reason.startswith(FAULTS), error.reason
        return
    again = next(d for chunk in split(made.text) if (d := read(chunk)))
    assert are_identical(again.value, expected)
    assert are_identical(made.document.value, expected)
    _check_other_lines(text[document.start : document.end], made.text, document, operation)


def _places(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The path of every key and item, up to a bound, with the collection that it is in."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    left = _MAX_PLACES
    for path, node in waiting:
        children: Any = node.items() if isinstance(node, dict) else ()
        for key, child in enumerate(node) if isinstance(node, list) else children:
            left -= 1
            if left < 0:
                return
            yield (*path, key), node
            waiting.append(((*path, key), child))


def _operation(source: random.Random, places: list[tuple[tuple[Any, ...], Any]]) -> Operation:
    path, parent = source.choice(places)
    kind = source.choice(("add", "replace", "remove"))
    if kind == "remove":
        return {"op": kind, "path": pointer(path)}
    if kind == "add" and isinstance(parent, dict):
        path = (*path[:-1], source.choice(_KEYS))
    return {"op": kind, "path": pointer(path), "value": copy.deepcopy(source.choice(_VALUES))}


def _check_other_lines(old: str, new: str, document: Document, operation: Operation) -> None:
    """The lines above the collection that is changed stay, and those below it."""
    places: list[Any] = [document.place]
    for part in operation["path"].split("/")[1:-1]:
        step, inside = part.replace("~1", "/").replace("~0", "~"), places[-1].inside
        places.append(inside[int(step) if isinstance(inside, list) else step])
    # Without its only entry, a collection becomes empty braces, which may stand elsewhere.
    is_emptied = operation["op"] == "remove" and len(places[-1].inside) == 1
    place = places[max(0, len(places) - 1 - is_emptied)]
    start = place.start if place.key_start < 0 else place.key_start
    above = old[: old.rfind("\n", 0, start - document.start) + 1]
    assert new.startswith(above), "a line above the edit has changed"
    end = old.find("\n", place.end - document.start) + 1
    # The last line may get a line break, of which a part stays with it.
    below = [line.rstrip("\r") for line in old[end:].split("\n")] if end else []
    lines = (line.rstrip("\r") for line in new.split("\n"))
    assert all(line in lines for line in below), f"a line below the edit has changed: {operation}"
