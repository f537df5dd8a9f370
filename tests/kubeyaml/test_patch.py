"""Tests of patches of YAML text: what an edit looks like, what stays, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest

from kubeyaml import Chunk, Document, YamlError, read
from kubeyaml.patch import Operation, PatchError, patch


def add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> Operation:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def move(origin: str, path: str) -> Operation:
    return {"op": "move", "from": origin, "path": path}


def patched(text: str, *operations: Operation) -> str:
    document = read(Chunk(text))
    assert document is not None
    expected = jsonpatch.apply_patch(document.value, list(operations))
    return patch(text, operations, expected).text


def refusal(text: str, *operations: Operation) -> str:
    with pytest.raises(PatchError) as caught:
        patched(text, *operations)
    return caught.value.reason


BLOCK = """\
# a pod
spec:   # the spec

  containers:
  - name: "main"     # first
    limits:
      cpu: '1'  # one core

      # memory: later
    env: []
    args:
    - a
    # between
    - b
    - c  # last

  other: |
    text
    # no comment

"""


@pytest.mark.parametrize(
    ("operation", "old", "new"),
    [
        (replace("/spec/containers/0/name", "x"), '"main"', '"x"'),
        (replace("/spec/containers/0/limits/cpu", "it's"), "'1'", "'it''s'"),
        (replace("/spec/containers/0/limits/cpu", 2), "'1'", "2"),
        (replace("/spec/containers/0/args/1", "no"), "- b\n", '- "no"\n'),
        (
            replace("/spec/containers/0/env", [{"name": "A", "value": ""}]),
            "    env: []\n",
            '    env:\n    - name: A\n      value: ""\n',
        ),
        (remove("/spec/containers/0/args/1"), "    - b\n", ""),
        (remove("/spec/containers/0/args/2"), "    - c  # last\n", ""),
        (remove("/spec/containers/0/env"), "    env: []\n", ""),
        (remove("/spec/containers/0/name"), 'name: "main"     # first\n    limits', "limits"),
        (
            remove("/spec/containers/0/limits/cpu"),
            "limits:\n      cpu: '1'  # one core\n",
            "limits: {}\n",
        ),
        (remove("/spec/other"), "  other: |\n    text\n    # no comment\n", ""),
        (
            add("/spec/containers/0/limits/a~1b", {"c": [1, [2], {}]}),
            "# one core\n",
            "# one core\n      a/b:\n        c:\n        - 1\n        - - 2\n        - {}\n",
        ),
        (add("/spec/containers/0/args/-", "#"), "- c  # last\n", '- c  # last\n    - "#"\n'),
        (add("/spec/containers/0/args/0", "z"), "    - a\n", "    - z\n    - a\n"),
        (add("/spec/containers/0/args/1", "z"), "    - b\n", "    - z\n    - b\n"),
        (add("/spec/x", None), "    # no comment\n", "    # no comment\n  x: null\n"),
        (add("/spec/x", "a\nb"), "    # no comment\n", '    # no comment\n  x: "a\\nb"\n'),
        (add("/kind", "Pod"), "    # no comment\n", "    # no comment\nkind: Pod\n"),
    ],
)
def test_only_the_edit_changes_in_block_style(operation: Operation, old: str, new: str) -> None:
    assert BLOCK.count(old) == 1
    assert patched(BLOCK, operation) == BLOCK.replace(old, new)
    windows = patched(BLOCK.replace("\n", "\r\n"), operation)
    assert windows == BLOCK.replace(old, new).replace("\n", "\r\n")
    assert patched("\ufeff" + BLOCK, operation) == "\ufeff" + BLOCK.replace(old, new)


FLOW = """\
metadata: {name: a, labels: {}, "quoted": 1 }
spec:
  args: [a, 'b', c,]
  long: [
    a,
    b,
  ]
"""


@pytest.mark.parametrize(
    ("operation", "old", "new"),
    [
        (replace("/metadata/name", "true"), "name: a", 'name: "true"'),
        (replace("/spec/args/1", "x y"), "'b'", "'x y'"),
        (replace("/spec/args/0", {"x": ["w"]}), "[a, ", "[{x: [w]}, "),
        (remove("/metadata/name"), "name: a, ", ""),
        (remove("/metadata/quoted"), ', "quoted": 1', ""),
        (remove("/spec/args/2"), ", c", ""),
        (remove("/spec/long/1"), "a,\n    b,", "a,"),
        (add("/metadata/labels/app", "x"), "labels: {}", "labels: {app: x}"),
        (add("/metadata/new", {"a": "b"}), '"quoted": 1', '"quoted": 1, "new": {"a": "b"}'),
        (add("/spec/args/1", "x"), "'b'", "x, 'b'"),
        (add("/spec/long/-", "c"), "    b,\n", "    b,\n    c,\n"),
        (add("/spec/long/0", "c"), "    a,\n", "    c,\n    a,\n"),
        (add("/spec/more", [1]), "  ]\n", "  ]\n  more:\n  - 1\n"),
    ],
)
def test_only_the_edit_changes_in_flow_style(operation: Operation, old: str, new: str) -> None:
    assert FLOW.count(old) == 1
    assert patched(FLOW, operation) == FLOW.replace(old, new)


@pytest.mark.parametrize(
    ("text", "operation", "new"),
    [
        ("{a, b: 1}\n", replace("/a", 2), "{a: 2, b: 1}\n"),
        ('["x", {"a"}]\n', replace("/1/a", "y"), '["x", {"a": "y"}]\n'),
        ("{a: , b: 1}\n", replace("/a", 2), "{a: 2 , b: 1}\n"),
        ("x: {a: }\n", add("/x/b", 1), "x: {a: , b: 1 }\n"),
    ],
)
def test_a_value_is_given_to_a_key_without_one(text: str, operation: Operation, new: str) -> None:
    assert patched(text, operation) == new


def test_an_entry_is_added_beside_a_merge_key_in_braces() -> None:
    text = "a: &x {b: 1}\nc: {<<: *x, d: 1}\n"
    assert patched(text, add("/c/e", 2)) == text.replace("d: 1", "d: 1, e: 2")


DATA = {"kind": "Pod", "spec": {"list": [{"a": 1}, {"b": "two"}], "empty": {}, "none": []}}


@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        lambda data: json.dumps(data, indent=2),
        lambda data: json.dumps(data, indent=4) + "\n",
        lambda data: json.dumps(data, separators=(",", ":")),
    ],
)
@pytest.mark.parametrize(
    "operation",
    [
        add("/spec/new", {"x": ["y", {"z": {}}]}),
        add("/spec/empty/x", {"y": [1]}),
        add("/spec/none/-", "é"),
        add("/spec/list/-", {"c": True}),
        replace("/spec/list/1/b", "three"),
        replace("/spec/empty", {"x": 1}),
        remove("/spec/list/1"),
        remove("/spec/none"),
    ],
)
def test_json_stays_json_in_its_own_layout(
    operation: Operation, write: Callable[[Any], str]
) -> None:
    expected = jsonpatch.apply_patch(DATA, [operation])
    written = patched(write(DATA), operation)
    assert json.loads(written) == expected
    assert written == write(expected).replace("\\u00e9", "é")


@pytest.mark.parametrize(
    ("operations", "old", "new"),
    [
        ([move("/a/b", "/a/x~1y")], "b:", "x/y:"),
        ([move("/a/b", "/a/yes")], "b:", '"yes":'),
        ([move("/a/c", "/a/it's")], "'c'", "'it''s'"),
        ([move("/a/d", "/a/x~1y")], '"d"', '"x/y"'),
        ([move("/a/e", "/a/f")], "? e\n", "? f\n"),
        ([move("/a/g", "/a/h")], "g: *one", "h: *one"),
        ([move("/z/i", "/z/x~1y")], "{i: 1", "{x/y: 1"),
        ([move("/z/j", "/z/x~1y")], '"j": 2', '"x/y": 2'),
        ([move("/a/b", "/a/x"), replace("/a/x", "2")], "b: '1'", "x: '2'"),
        ([move("/a/b", "/a/x"), move("/a/x", "/a/w")], "b: '1'", "w: '1'"),
    ],
)
def test_only_the_key_changes(operations: list[Operation], old: str, new: str) -> None:
    assert RENAMED.count(old) == 1
    assert patched(RENAMED, *operations) == RENAMED.replace(old, new)


RENAMED = """\
a:
  # the first
  b: '1'  # one
  'c': &one 1
  "d" : x
  ? e
  : 2
  g: *one
z: {i: 1, "j": 2}
"""


def test_a_collection_is_changed_only_where_it_differs() -> None:
    text = "env:\n- name: A # kept\n  valueFrom: {fieldRef: x}\n- name: B\n"
    new = [{"name": "A", "value": "void"}, {"name": "B"}]
    assert patched(text, replace("/env", new)) == (
        "env:\n- name: A # kept\n  value: void\n- name: B\n"
    )


def test_new_text_has_the_layout_of_the_document() -> None:
    text = "a:\n    b:\n        - c:\n              d: 1\n"
    new = "new:\n    k:\n        - v:\n              w: 1\n"
    assert patched(text, add("/new", {"k": [{"v": {"w": 1}}]})) == text + new


def test_new_text_is_indented_as_most_of_the_document() -> None:
    by_one = "a:\n b:\n  c: 1\n"
    assert patched(by_one, add("/d", {"e": {"f": 1}})) == by_one + "d:\n e:\n  f: 1\n"
    dashes = "a:\n- 1\nb:\n- 1\nc:\n  - 1\n"
    assert patched(dashes, add("/d", [1])) == dashes + "d:\n- 1\n"


def test_what_aliases_repeat_does_not_count_for_the_layout() -> None:
    wide = "base: &x\n  a:\n      b:\n          c: 1\n"
    text = wide + "".join(f"{name}:\n  <<: *x\n  d: 1\n" for name in "pqr")
    assert patched(text, add("/new", {"k": 1})) == text + "new:\n  k: 1\n"


LIST = """\
spec:
  containers:
  - name: a
    mounts:
      - path: /data

      # - path: /etc
      #   name: config
    # about the next entry
"""


def test_a_comment_that_ends_a_list_stays_at_its_end() -> None:
    last = "    # about the next entry\n"
    above = LIST.removesuffix(last)
    assert patched(LIST, add("/spec/containers/0/env", "x")) == f"{above}    env: x\n{last}"
    assert patched(LIST, add("/spec/x", 1)) == f"{LIST}  x: 1\n"
    assert patched(LIST, add("/x", 1), add("/spec/z", 2)) == f"{LIST}  z: 2\nx: 1\n"
    item = LIST.replace("\n\n", "\n      - 1\n\n", 1)
    assert patched(LIST, add("/spec/containers/0/mounts/-", 1)) == item


def test_a_comment_at_the_end_of_the_text_stays_without_a_line_break() -> None:
    assert patched("a:\n  - 1\n  # - 2", add("/b", 1)) == "a:\n  - 1\n  # - 2\nb: 1"
    assert patched("a:\r\n  - 1\r\n  # 2\r\n", add("/b", 1)) == "a:\r\n  - 1\r\n  # 2\r\nb: 1\r\n"


def test_a_comment_below_the_document_stays_there() -> None:
    text = "a:\n  - 1\n---\n  # of the next\nb: 1\n"
    document = read(Chunk("a:\n  - 1\n"))
    assert document
    assert patch(text, [add("/c", 1)], {"a": [1], "c": 1}, document).text == "a:\n  - 1\nc: 1\n"


def test_an_empty_mapping_in_braces_is_filled_as_json() -> None:
    assert patched("{}\n", add("/a", "x")) == '{"a": "x"}\n'


def test_a_text_without_a_final_line_break_gets_none() -> None:
    assert (
        patched("a: 1\nb:\n  - c", add("/b/-", "d"), add("/e", 1)) == "a: 1\nb:\n  - c\n  - d\ne: 1"
    )
    assert patched("a: 1\r\nb: 2\r\nc: 3", remove("/c"), remove("/b")) == "a: 1"


@pytest.mark.parametrize(
    ("text", "operation", "reason"),
    [
        ("a: &x {b: 1}\nc: *x\n", add("/c/d", 1), "an alias stands for the value"),
        ("a: &x {b: 1}\nc: *x\n", replace("/c/b", 2), "an alias stands for the value"),
        ("a: &x {b: 1}\nc: *x\n", remove("/a/b"), "the value has an anchor"),
        ("a: &x 1\nc: *x\n", replace("/a", 2), "the value has an anchor"),
        ("a: {b: &x 1}\nc: 2\n", remove("/a"), "the value has an anchor"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", replace("/c/b", 2), "a merge key (<<) supplies"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n", remove("/c/b"), "a merge key (<<) supplies"),
        ("a: !!str 1\n", replace("/a", 2), "the value has a tag"),
        ('a: "{{ .Values.a }}"\n', replace("/a", 2), "a template fills in this text"),
        ('a: ["{{ .Values.a }}"]\nb: 1\n', remove("/a"), "a template fills in this text"),
        ("# {{- if .Values.a }}\na: 1\n# {{ end }}\n", add("/b", 1), "the file is a template"),
        ("a: 1\n", remove("/a"), "the only entry of the document"),
        ("? a\n: 1\n", replace("/a", 2), "behind a question mark"),
        ("b: 1\n? a\n: 1\n", remove("/a"), "behind a question mark"),
        ("? a\n: 1\n", add("/b", 2), "behind a question mark"),
        ("- a: 1\n  # why\n  b: 2\n", remove("/0/a"), "a comment stands below"),
        ("a: [\n  b, # why\n  c]\n", remove("/a/1"), "a comment stands between the brackets"),
        ("a: [\n  b # why\n]\n", add("/a/-", 1), "a comment stands between the brackets"),
        ("a:\n  # why\n  b: 1\n  # more\n  c: 1\n", replace("/a", 1), "contains comments"),
        ("a: [b: 1]\n", add("/a/0/c", 1), "the mapping has no braces"),
        ("a: 1\na: 2\nb: 1\n", remove("/a"), "would not be read as the fixed object"),
        ("a: |\n  text", add("/b", 1), "ends in a block scalar without a newline; add a newline"),
        ("a:\n- b: >\n    text", add("/a/-", 1), "a block scalar without a newline; add a newline"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n", move("/c/b", "/c/d"), "a merge key (<<) supplies"),
        ("a:\n  &b c: 1\n", move("/a/c", "/a/d"), "the key has an anchor or a tag"),
        ("a: &x {b: 1}\nc: {<<: *x}\n", add("/c/d", 1), "a merge key (<<) supplies all other"),
        ("a: &x {b: 1}\nc: {<<: *x, d: 1}\n", remove("/c/d"), "a merge key (<<) stands beside"),
        ("a: &x {b: 1}\nc: {e: 1, <<: *x, d: 1}\n", remove("/c/d"), "a merge key (<<) stands"),
        ("a: &x {b: 1}\nc: {d: 1, <<: *x, e: 1}\n", remove("/c/d"), "a merge key (<<) stands"),
        ("{!!str a, c: 1}\n", replace("/a", 1), "the key has an anchor or a tag"),
        ('{"a\n  b", c: 1}\n', replace("/a b", 1), "the key is on several lines"),
        ("a:\n\r- 1\n", add("/a/-", 2), "line breaks other than newlines"),
        ("a:\n- #\rb: 1\n", remove("/a/0"), "line breaks other than newlines"),
        ('"{{ .a }}": 1\n', move("/{{ .a }}", "/d"), "a template fills in this text"),
    ],
)
def test_what_cannot_be_edited_alone_is_refused(
    text: str, operation: Operation, reason: str
) -> None:
    assert reason in refusal(text, operation)


def test_a_tag_and_a_bracket_keep_a_blank_between_them() -> None:
    assert patched("a: [!x, 1]\n", remove("/a/1")) == "a: [!x ]\n"
    assert patched("{!x a: !y, b: 1}\n", remove("/b")) == "{!x a: !y }\n"
    assert patched("a: [!x b, 1]\n", remove("/a/1")) == "a: [!x b]\n"


def test_a_refusal_names_the_place() -> None:
    for operation in (replace("/c/0/b", 2), add("/c/0/b", 2), remove("/c/0/b")):
        with pytest.raises(PatchError) as caught:
            patch("a: &x {b: 1}\nc: [*x]\n", [operation], {})
        assert caught.value.path == ("c", 0, "b")


def test_entries_that_go_below_one_line_come_into_the_right_collections() -> None:
    text = "a:\n  b:\n  - c: 1\nd: 1"
    operations = [add("/e", 1), add("/a/x", 1), add("/a/b/-", 1), add("/a/b/0/z", 1), add("/f", 1)]
    assert patched(text, *operations) == (
        "a:\n  b:\n  - c: 1\n    z: 1\n  - 1\n  x: 1\nd: 1\ne: 1\nf: 1"
    )


def test_an_edit_beside_an_anchor_is_made() -> None:
    text = "base: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n"
    assert patched(text, add("/c/e", 1), remove("/c/d")) == text.replace("d: 1", "e: 1")


def test_an_unexpected_result_is_refused() -> None:
    with pytest.raises(PatchError, match="would not be read as the fixed object"):
        patch("a: 1\n", [replace("/a", "1")], {"a": 1})


def test_text_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(YamlError):
        patch("a: [", [], {})
    with pytest.raises(PatchError, match="no document"):
        patch("# nothing", [], {})


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that patches have read."""
    texts: list[str] = []

    def counted(chunk: Chunk) -> Document | None:
        texts.append(chunk.text)
        return read(chunk)

    monkeypatch.setattr("kubeyaml.patch.patching.read", counted)
    return texts


def test_scalars_in_the_place_of_others_are_read_together(readings: list[str]) -> None:
    text = "".join(f"k{n}: {n}  # a comment\n" for n in range(200))
    edits = [replace(f"/k{n}", "new") for n in range(200)]
    assert patched(text, *edits, add("/last", 1)) == re.sub(r": \d+", ": new", text) + "last: 1\n"
    assert len(readings) <= 3


@pytest.mark.parametrize("indent", [None, 2])
def test_new_entries_of_many_flow_collections_are_read_together(
    readings: list[str], indent: int | None
) -> None:
    pods = [{"n": n, "spec": {"a": {"x": 1}, "empty": {}, "list": [1]}} for n in range(200)]
    text = json.dumps({"items": pods}, indent=indent)
    edits = [
        add(f"/items/{n}/spec/{path}", n)
        for n in range(200)
        for path in ("a/y", "b", "list/-", "a/z", "empty/k", "c")
    ]
    new = patched(text, *edits)
    assert json.loads(new) == jsonpatch.apply_patch({"items": pods}, edits)
    assert len(readings) <= 3


def test_two_new_entries_of_an_empty_collection_are_both_made() -> None:
    assert patched("a: {}\n", add("/a/x", 1), add("/a/z", 2)) == "a: {x: 1, z: 2}\n"
    assert patched("a: []\n", add("/a/-", 1), add("/a/-", 2)) == "a: [1, 2]\n"


def test_edits_that_would_be_read_one_by_one_are_bounded(readings: list[str]) -> None:
    text = "".join(f"k{n}: {n}\n" for n in range(200))
    edits = [remove(f"/k{n}") for n in range(199)]
    assert "too many edits in one document" in refusal(text, *edits)
    assert sum(map(len, readings)) <= 51 * (len(text) + 1000)
