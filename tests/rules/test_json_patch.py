"""Tests of edits and of the JSON Patch operations that they become."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.base.json_values import (
    Edit,
    EditError,
    Json,
    Path,
    append,
    apply,
    pointer,
    put,
    remove,
    rename,
    value_at,
)


def operations(document: Json, *edits: Edit) -> list[dict[str, Any]]:
    return apply(document, edits)[1]


def add(path: str, value: Json) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Json) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def removal(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def move(origin: str, path: str) -> dict[str, Any]:
    return {"op": "move", "from": origin, "path": path}


@pytest.mark.parametrize(
    ("document", "edit", "operation"),
    [
        # A member is added where there is none; the API server treats null as none.
        ({}, put(("a",), 1), add("/a", 1)),
        ({"a": None}, put(("a",), 1), add("/a", 1)),
        ({"a": 0}, put(("a",), 1), replace("/a", 1)),
        ({"a": {}}, put(("a",), None), replace("/a", None)),
        # Missing parents are added too, by one operation at the highest missing one.
        ({}, put(("a", "b", "c"), 1), add("/a", {"b": {"c": 1}})),
        ({"a": None}, put(("a", "b", "c"), 1), add("/a", {"b": {"c": 1}})),
        ({"a": {"b": None}}, put(("a", "b", "c"), 1), add("/a/b", {"c": 1})),
        ({"a": [None]}, put(("a", 0, "b"), 1), replace("/a/0", {"b": 1})),
        # Elements can be replaced, but not added.
        ({"a": [1, 2]}, put(("a", 1), 3), replace("/a/1", 3)),
        ([1, 2], put((0,), 3), replace("/0", 3)),
        # Lists.
        ({"a": [1]}, append(("a",), 2), add("/a/-", 2)),
        ({"a": []}, append(("a",), 2), add("/a/-", 2)),
        ([], append((), 2), add("/-", 2)),
        ({}, append(("a",), 2), add("/a", [2])),
        ({"a": None}, append(("a",), 2), add("/a", [2])),
        ({}, append(("a", "b"), 2), add("/a", {"b": [2]})),
        # Removal, also of what is null.
        ({"a": 1}, remove(("a",)), removal("/a")),
        ({"a": None}, remove(("a",)), removal("/a")),
        ({"a": [1, 2]}, remove(("a", 1)), removal("/a/1")),
        # What it leaves empty goes too, but no element of a list and no member of the document.
        ({"a": {"b": {"c": [1]}, "d": 1}}, remove(("a", "b", "c", 0)), removal("/a/b")),
        ({"a": {"b": 1}}, remove(("a", "b")), removal("/a/b")),
        ({"a": [{"b": {"c": 1}}]}, remove(("a", 0, "b", "c")), removal("/a/0/b")),
        # A member keeps its value under a new name.
        ({"a": {"b": [1], "c": 2}}, rename(("a", "b"), "d/e"), move("/a/b", "/a/d~1e")),
    ],
)
def test_one_edit_becomes_one_operation(
    document: Json, edit: Edit, operation: dict[str, Any]
) -> None:
    before = copy.deepcopy(document)
    result, patch = apply(document, [edit])
    assert patch == [operation]
    assert jsonpatch.apply_patch(document, copy.deepcopy(patch)) == result
    assert document == before


@pytest.mark.parametrize(
    ("document", "edits"),
    [
        ({"a": 1}, [put(("a", "b"), 1)]),
        ({"a": "text"}, [put(("a", 0), 1)]),
        ({"a": {}}, [put(("a", 0), 1)]),
        ({"a": [1]}, [put(("a", "b"), 1)]),
        ({"a": [1]}, [put(("a", 1), 1)]),
        ({"a": [1]}, [put(("a", -1), 1)]),
        ({"a": [1]}, [put(("a", 1, "b"), 1)]),
        ({}, [put(("a", 0), 1)]),
        ({}, [put(("a", 0, "b"), 1)]),
        ({"a": [None]}, [put(("a", 0, 0), 1)]),
        ({"a": {}}, [append(("a",), 1)]),
        ({"a": "text"}, [append(("a",), 1)]),
        ({"a": [1]}, [append(("a", 1), 1)]),
        ({}, [append((), 1)]),
        (None, [put(("a",), 1)]),
        ({}, [remove(("a",))]),
        ({}, [remove(("a", "b"))]),
        ({"a": None}, [remove(("a", "b"))]),
        ({"a": [1]}, [remove(("a", 1))]),
        ({"a": [1]}, [remove(("a", -1))]),
        ({"a": [1]}, [remove(("a", "0"))]),
        ({"a": {"b": 1}}, [rename(("a", "c"), "d")]),
        ({"a": {"b": 1, "c": 2}}, [rename(("a", "b"), "c")]),
        ({"a": [1]}, [rename(("a", 0), "b")]),
        ({"a": {"b": 1}}, [rename(("a", "b"), "c"), put(("a", "c"), 2)]),
        ({"a": {"b": 1}}, [rename(("a", "b"), "c"), remove(("a", "b"))]),
        ({"a": {"b": {}}}, [rename(("a", "b"), "c"), put(("a", "b", "d"), 1)]),
        ({"a": "text"}, [remove(("a", 0))]),
        # The document itself cannot be replaced.
        ({}, [put((), {})]),
        ([], [put((), [])]),
        (None, [append((), 1)]),
        ({}, [remove(())]),
        # Paths refer to the original document, not to the result of other edits.
        ({"a": [1]}, [append(("a",), 2), put(("a", 1), 3)]),
        ({}, [append(("a",), 1), put(("a", 0), 2)]),
        ({}, [append(("a",), 1), remove(("a", 0))]),
        ({}, [append(("a",), 1), put(("a", "b"), 2)]),
        ({}, [put(("a", "b"), 2), append(("a",), 1)]),
        ({}, [append(("a",), 1), put(("a", "b", "c"), 2)]),
        ({}, [append(("a",), 1), remove(("a", "b"))]),
        ({}, [put(("a", "b"), 1), remove(("a", "c"))]),
    ],
)
def test_edits_that_do_not_fit_are_refused(document: Json, edits: list[Edit]) -> None:
    before = copy.deepcopy(document)
    with pytest.raises(EditError):
        apply(document, edits)
    assert document == before


@pytest.mark.parametrize(
    "edits",
    [
        [put(("a",), 1), put(("a",), 1)],
        [put(("a",), 1), remove(("a",))],
        [remove(("a",)), remove(("a",))],
        [put(("a",), {}), put(("a", "b"), 1)],
        [put(("a", "b"), 1), put(("a",), {})],
        [remove(("a",)), put(("a", "b", "c"), 1)],
        [remove(("a",)), remove(("a", "b"))],
        [put(("l",), []), append(("l",), 1)],
        [append(("l",), 1), remove(("l",))],
        [remove(("o", 0)), append(("o", 0, "env"), 1)],
    ],
)
def test_overlapping_edits_are_refused(edits: list[Edit]) -> None:
    document: Json = {"a": {"b": {"c": 0}}, "l": [0], "o": [{"env": []}]}
    before = copy.deepcopy(document)
    with pytest.raises(EditError):
        apply(document, edits)
    assert document == before


def test_several_edits_below_one_missing_parent() -> None:
    edits = [put(("a", "b"), 1), put(("a", "c", "d"), 2), append(("a", "e"), 3)]
    result, patch = apply({}, [*edits, append(("a", "e"), 4)])
    assert result == {"a": {"b": 1, "c": {"d": 2}, "e": [3, 4]}}
    assert patch == [add("/a", {"b": 1}), add("/a/c", {"d": 2}), add("/a/e", [3]), add("/a/e/-", 4)]


def test_a_renamed_member_keeps_its_place() -> None:
    document: Json = {"a": {"x": 1, "y": 2, "z": 3}}
    result, _ = apply(document, [rename(("a", "y"), "w")])
    assert list(result["a"]) == ["x", "w", "z"]  # type: ignore[call-overload, index]


def test_removals_come_last_and_from_the_back() -> None:
    document: Json = {"l": list(range(12)), "m": {"x": 1, "y": 2}}
    edits = [remove(("l", 2)), remove(("m", "x")), remove(("l", 10)), put(("l", 11), "new")]
    result, patch = apply(document, edits)
    assert result == {"l": [0, 1, 3, 4, 5, 6, 7, 8, 9, "new"], "m": {"y": 2}}
    assert patch == [replace("/l/11", "new"), removal("/m/x"), removal("/l/10"), removal("/l/2")]


def test_a_removal_inside_an_element_comes_before_the_removal_of_another_element() -> None:
    document: Json = {"c": [{"e": [1, 2]}, {"e": [3]}]}
    result, _ = apply(document, [remove(("c", 0, "e", 0)), remove(("c", 1))])
    assert result == {"c": [{"e": [2]}]}


def test_keys_are_escaped() -> None:
    assert pointer(("a/b", "~", 0, "~1", "")) == "/a~1b/~0/0/~01/"
    assert operations({"limits": {}}, put(("limits", "nvidia.com/gpu"), 1)) == [
        add("/limits/nvidia.com~1gpu", 1)
    ]
    document: Json = {"a/b": {"~1": [1]}}
    result, patch = apply(document, [append(("a/b", "~1"), 2), put(("a/b", "~"), 3)])
    assert jsonpatch.apply_patch(document, copy.deepcopy(patch)) == result


def test_unedited_values_stay_the_same_objects() -> None:
    document: Any = {"a": {"b": {}, "c": [{}, {}]}, "d": {"e": []}}
    result: Any = apply(document, [put(("a", "c", 1, "x"), 1)])[0]
    assert result["d"] is document["d"]
    assert result["a"]["b"] is document["a"]["b"]
    assert result["a"]["c"][0] is document["a"]["c"][0]
    assert result["a"]["c"][1] is not document["a"]["c"][1]


def test_an_object_that_occurs_twice_changes_only_where_it_is_edited() -> None:
    shared: dict[str, Any] = {"x": 1}
    document: Any = {"a": shared, "b": shared}
    result, _ = apply(document, [put(("a", "x"), 2)])
    assert result == {"a": {"x": 2}, "b": {"x": 1}}
    assert shared == {"x": 1}


def test_values_are_never_changed() -> None:
    value: dict[str, Any] = {"l": []}
    first, patch = apply({}, [put(("a",), value)])
    second, _ = apply(first, [append(("a", "l"), 1)])
    assert second == {"a": {"l": [1]}}
    assert value == {"l": []}
    assert patch == [add("/a", {"l": []})]


def test_no_edits_change_nothing() -> None:
    document: Json = {"a": 1}
    result, patch = apply(document, [])
    assert result is document
    assert patch == []


def test_twenty_thousand_removals_in_one_batch() -> None:
    document: Json = {"l": list(range(20_000)), "kept": {}}
    result, patch = apply(document, [remove(("l", index)) for index in range(20_000)])
    assert result == {"l": [], "kept": {}}
    assert patch[0] == removal("/l/19999")
    assert patch[-1] == removal("/l/0")


def test_value_at_returns_the_value_at_a_path() -> None:
    assert value_at({"a": [{"b": 1}]}, ("a", 0, "b")) == 1
    with pytest.raises(KeyError):
        value_at({}, ("a",))


scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "y"])
keys = st.sampled_from(["a", "b", "a/b", "~", "~1", ""])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
documents = st.lists(values, max_size=3) | st.dictionaries(keys, values, min_size=2, max_size=6)


def paths_and_values(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, node
    if isinstance(node, dict | list):
        for step in node if isinstance(node, dict) else range(len(node)):
            yield from paths_and_values(node[step], (*path, step))


@st.composite
def edits(draw: st.DrawFn, document: Json) -> Edit:
    """An edit that usually fits; otherwise its last step or its kind is wrong."""
    path, node = draw(st.sampled_from(list(paths_and_values(document))))
    new = tuple(draw(st.lists(keys, min_size=1, max_size=3)))
    choices = [remove(path), put(path, draw(values))]
    if isinstance(node, dict):
        choices += [put((*path, *new), draw(values)), append((*path, *new), draw(values))] * 2
    if isinstance(node, list):
        choices += [append(path, draw(values))] * 4
    if not draw(st.integers(0, 5)):
        step: str | int = draw(keys | st.integers(-1, 3))
        choices = [put((*path, step), 0), append((*path, step), 0), remove((*path, step))]
    chosen: Edit = draw(st.sampled_from(choices))
    return chosen


@settings(deadline=None)
@given(st.data(), documents)
def test_the_operations_lead_to_the_result_or_nothing_happens(
    data: st.DataObject, document: Json
) -> None:
    batch = data.draw(st.lists(edits(document), max_size=5))
    before = copy.deepcopy(document)
    try:
        result, patch = apply(document, batch)
    except EditError:
        assert document == before
        return
    assert document == before
    assert len(patch) == len(batch)
    replayed = jsonpatch.apply_patch(document, copy.deepcopy(patch))
    assert replayed == result
    assert typed(replayed) == typed(result)


def typed(value: Json) -> Any:
    """`value` with types, because Python treats 1 and True as equal, and 0 and False."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return (type(value), value)


@settings(deadline=None)
@given(st.data(), documents)
def test_values_outside_of_every_edited_path_stay_the_same_objects(
    data: st.DataObject, document: Json
) -> None:
    batch = data.draw(st.lists(edits(document), max_size=3))
    try:
        result, _ = apply(document, batch)
    except EditError:
        return
    if isinstance(document, dict) and isinstance(result, dict):
        for key in document.keys() - {edit.path[0] for edit in batch if edit.path}:
            assert result[key] is document[key]
