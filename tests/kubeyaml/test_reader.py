"""Tests of the YAML reader: kubectl's values, exact spans, and hostile texts."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeyaml import (
    Chunk,
    Document,
    Duplicate,
    Json,
    Limits,
    Lines,
    Place,
    YamlError,
    line_and_column,
    read,
    split,
)
from tests.testkit.paths import DATA

ANSWERS = [
    row.split("\t")
    for row in (DATA / "yaml_scalars.tsv")
    .read_text(encoding="utf-8")
    .removesuffix("\n")
    .split("\n")
]


def document(text: str, limits: Limits | None = None) -> Document:
    found = read(Chunk(text), limits or Limits())
    assert found is not None
    return found


def refusal(text: str, limits: Limits | None = None) -> tuple[str, int]:
    with pytest.raises(YamlError) as caught:
        read(Chunk(text), limits or Limits())
    return caught.value.message, caught.value.offset


def places(place: Place, value: Json, path: tuple[str | int, ...] = ()) -> Iterator[Any]:
    """Yield path, place and value of each node, and check that the two trees match."""
    yield path, place, value
    if isinstance(place.inside, dict):
        assert isinstance(value, dict)
        assert place.inside.keys() == value.keys()
        for key, inside in place.inside.items():
            yield from places(inside, value[key], (*path, key))
    elif isinstance(place.inside, list):
        assert isinstance(value, list)
        for index, (inside, item) in enumerate(zip(place.inside, value, strict=True)):
            yield from places(inside, item, (*path, index))
    else:
        assert not isinstance(value, dict | list)


def spans(text: str) -> dict[str, str]:
    """The text of each value of a document by its dotted path; the root has the path ''."""
    found = document(text)
    return {
        ".".join(map(str, path)): text[place.start : place.end]
        for path, place, _ in places(found.place, found.value)
    }


def same(one: Json, other: Json) -> bool:
    """Return whether both are equal, with 1, 1.0 and True as different values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


# Values


@pytest.mark.parametrize(
    ("quoted", "answer"), ANSWERS, ids=[f"line-{line}" for line in range(1, len(ANSWERS) + 1)]
)
def test_means_what_kubectl_reads(quoted: str, answer: str) -> None:
    text = json.loads(quoted)
    if answer == "error":
        refusal(text)
        return
    found = read(Chunk(text))
    assert same(found.value if found else None, json.loads(answer))


def test_keys_that_are_no_strings_become_the_strings_of_json() -> None:
    assert document("1: a\ny: b\n1.50: c\n").value == {"1": "a", "true": "b", "1.5": "c"}


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n  # comments\n", "---\n", "--- # c\n\n"])
def test_a_chunk_without_a_document_is_none(text: str) -> None:
    assert read(Chunk(text)) is None


@pytest.mark.parametrize("text", ["~", "null", "!!null", "--- null"])
def test_a_null_that_is_written_is_a_document(text: str) -> None:
    assert document(text).value is None


def test_a_second_document_in_a_chunk_is_refused_since_kubectl_would_drop_it() -> None:
    message, offset = refusal("a: 1\n...\n--- \nb: 2\n")
    assert "second document" in message
    assert offset == 9
    assert refusal('{"a": 1}\n{"b": 2}\n')[1] == 9
    assert document("a: 1\n...\n# the end\n").value == {"a": 1}


def test_later_duplicates_win_and_are_reported() -> None:
    text = "a:\n- b: 1\n  c: 2\n  b: 3\na2: {x: 1, x: 2}\n"
    found = document(text)
    assert found.value == {"a": [{"b": 3, "c": 2}], "a2": {"x": 2}}
    assert found.duplicates == (
        Duplicate(("a", 0, "b"), text.index("b: 3")),
        Duplicate(("a2", "x"), text.index("x: 2")),
    )
    assert spans(text)["a.0.b"] == "3"


def test_keys_that_become_the_same_string_are_duplicates() -> None:
    found = document("1: a\n'1': b\n")
    assert found.value == {"1": "b"}
    assert found.duplicates == (Duplicate(("1",), 5),)


def test_what_a_merge_overrides_is_no_duplicate() -> None:
    assert document("a: &a {x: 1}\nb: {x: 2, <<: *a}\nc: {<<: *a, x: 3}\n").duplicates == ()


# Spans


def test_spans_of_keys_and_values() -> None:
    text = "a: 1\nb:\n  - 'x'  # c\n  -   \"y z\"\nc: {d: e , f: [g]}\n"
    assert spans(text) == {
        "": text.rstrip(),
        "a": "1",
        "b": "- 'x'  # c\n  -   \"y z\"",
        "b.0": "'x'",
        "b.1": '"y z"',
        "c": "{d: e , f: [g]}",
        "c.d": "e",
        "c.f": "[g]",
        "c.f.0": "g",
    }
    found = document(text)
    keys = [
        text[place.key_start : place.key_end]
        for _, place, _ in places(found.place, found.value)
        if place.key_start >= 0
    ]
    assert keys == ["a", "b", "c", "d", "f"]


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("a: x", "plain"),
        ("a:", "plain"),
        ("a: 'x'", "single"),
        ('a: "x"', "double"),
        ("a: |\n x", "literal"),
        ("a: >\n x", "folded"),
        ("a:\n- x", "block"),
        ("a:\n  b: x", "block"),
        ("a: [x]", "flow"),
        ("a: {}", "flow"),
    ],
)
def test_styles(text: str, style: str) -> None:
    inside = document(text).place.inside
    assert isinstance(inside, dict)
    assert inside["a"].style == style


@pytest.mark.parametrize(
    ("text", "path", "span"),
    [
        ("a: x\n\n\n# c\nb: y", "a", "x"),
        ("a:\n  b: x\n\n# c\nc: y", "a", "b: x"),
        ("a:\n- x\n\n# c\nc: y", "a", "- x"),
        ("a: x\n  y # c\nb: z", "a", "x\n  y"),
        ("a: 'x\n  y'", "a", "'x\n  y'"),
        ("a: |\n  x\n\n\nb: y", "a", "|\n  x"),
        ("a: |-\n  x\n\n# c\nb: y", "a", "|-\n  x"),
        ("a: >\r\n  x\r\n\r\nb: y", "a", ">\r\n  x"),
        ("a: |+\n  x\n\n\nb: y", "a", "|+\n  x\n\n"),
        ("a: |2+ # +\r\n  x\r\n\r\nb: y", "a", "|2+ # +\r\n  x\r\n"),
        ("a: !x |+\n  x\n\n\nb: y", "a", "!x |+\n  x\n\n"),
        ("a: |-\n  +\n\n\nb: y", "a", "|-\n  +"),
        ("a: |\n  x  \n\nb: y", "a", "|\n  x  "),
        ("a: |\n  x", "a", "|\n  x"),
        ("a: |\nb: y", "a", "|"),
        ("a:\n- |\n  x\n\n\nb: y", "a", "- |\n  x"),
        ("a:\n- b: |\n    x\n\n\n- y", "a", "- b: |\n    x\n\n\n- y"),
        ("a: !!str 12", "a", "!!str 12"),
        ("a: &b x", "a", "&b x"),
        ("a: &b\n  c: x\n", "a", "&b\n  c: x"),
        ("a: &b\n- x\n", "a", "&b\n- x"),
        ("a: &b x\nc: *b # c", "c", "*b"),
        ("a: [b, c: d, ? e : f]", "a.1", "c: d"),
        ("a: [{b: c} , d]", "a.0", "{b: c}"),
        ("a: [b , # ]\n c\n] # c", "a", "[b , # ]\n c\n]"),
        ("é: 😀\nb: x", "b", "x"),
        ("a: '\u2028 \x85'\nb: x", "b", "x"),
    ],
)
def test_marks(text: str, path: str, span: str) -> None:
    assert spans(text)[path] == span


@pytest.mark.parametrize(
    ("text", "path", "before"),
    [
        ("a:\nb: x", "a", "a:"),
        ("a:   # c\nb: x", "a", "a:"),
        ("-\n- x", "0", "-"),
        ("- # c\n\n- x", "0", "-"),
        ("{a: , b: x}", "a", "{a:"),
        ("{a , b: x}", "a", "{a"),
        ("{a: b, c: # d:\n}", "c", "{a: b, c:"),
        ("{a : # d\n}", "a", "{a :"),
        ("{a # b:\n , c: x}", "a", "{a"),
        ("{'a:' , c: x}", "a:", "{'a:'"),
        ("[a: , b]", "0.a", "[a:"),
        ("[? a , b]", "0.a", "[? a"),
        ("? a\n# c:\n? b", "a", "? a"),
        ("? a\n# c\n: # d\n? b\n", "a", "? a\n# c\n:"),
    ],
)
def test_the_span_of_an_empty_value_follows_its_colon_dash_or_key(
    text: str, path: str, before: str
) -> None:
    found = document(text)
    (place,) = (
        place
        for steps, place, _ in places(found.place, found.value)
        if ".".join(map(str, steps)) == path
    )
    assert (place.start, place.end) == (len(before), len(before))


def test_offsets_count_from_the_start_of_the_file_past_byte_order_marks() -> None:
    text = "\ufeffa: 1\n---\n\ufeff# c\nb:\n  c: é\n"
    first, second = (read(chunk) for chunk in split(text))
    assert first is not None
    assert second is not None
    assert (first.start, first.line, second.start, second.line) == (0, 1, 10, 3)
    assert text[first.place.start : first.place.end] == "a: 1"
    assert text[second.place.start : second.place.end] == "b:\n  c: é"


def test_anchors_aliases_merges_and_tags_are_noted() -> None:
    found = document(
        "a: &a {x: &x 1, z: !!str 2}\nb: *a\nc: {<<: *a, z: 3}\nd: !t &d [1]\ne: !t {f: 1}\n"
    )
    notes = {
        ".".join(map(str, path)): place.note
        for path, place, _ in places(found.place, found.value)
        if place.note
    }
    assert notes == {
        "a": "anchor",
        "a.x": "anchor",
        "a.z": "tag",
        "b": "alias",
        "b.x": "anchor",
        "b.z": "tag",
        "c.x": "merge",
        "d": "anchor",
        "e": "tag",
    }


def test_values_of_an_alias_or_merge_keep_the_span_where_they_were_written() -> None:
    text = "a: &a {x: [1]}\nb: *a\nc: {<<: *a}\n"
    found = spans(text)
    assert (found["b"], found["c"]) == ("*a", "{<<: *a}")
    assert found["b.x"] == found["c.x"] == "[1]"


# Refusals


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a: [b, c", 8),
        ("a: 'b", 5),
        ("é: \x01", 3),
        ("é: b\n" * 5000 + "\x01", 25_000),
        ("a: \ud800", 3),
        ("a: !%ED%A0%80 b", 0),
        ('a: "\\ud83d\\ude00"', 6),
        ("a: b: c", 4),
        ("a: .inf", 3),
        ("b: 1\n~: x", 5),
        ("b: 1\n[a]: x", 5),
        ("a: !!int b", 3),
        ("a: *b", 3),
        ("a: &a [b, *a]", 10),
        ("a: &a 1\nb: {<<: *a}", 16),
        ("[http://a?b]", 1),
        ("a: {b: c?}", 7),
    ],
)
def test_a_refusal_says_where(text: str, at: int) -> None:
    assert refusal(text)[1] == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a: &a [1, 2, 3]\nb: *a", 19),  # too many nodes by aliases
        ("a: [[[[1]]]]", 6),  # too deep
        ("a: &a 1\nb: {<<: *a}", 16),
        ("b: 1\n~: x", 5),
    ],
)
def test_a_refusal_in_a_later_document_says_where_in_the_file(text: str, at: int) -> None:
    *_, last = split("first: 1\n---\n" + text)
    with pytest.raises(YamlError) as caught:
        read(last, Limits(max_depth=4, max_alias_nodes=3))
    assert caught.value.offset == len("first: 1\n---\n") + at


def test_a_key_that_json_cannot_have_is_named() -> None:
    for key in ("null", "9223372036854775808"):
        assert refusal(f"{key}: 1")[0] == f"{key} cannot be a key; kubectl refuses it"


def test_the_nearest_place_of_a_path_is_that_of_its_last_existing_part() -> None:
    place = document("a: {b: [1]}\n").place
    for path, start, found in (
        (("a", "b", 0), 8, True),
        (("a", "b", 1), 7, False),
        (("a", "c", "d"), 3, False),
        (("c",), 0, False),
        ((), 0, True),
    ):
        nearest, is_exact = place.nearest(path)
        assert (nearest.start, is_exact) == (start, found)


def test_the_message_says_what_is_wrong() -> None:
    message, offset = refusal("a: [b, c")
    assert message == "while parsing a flow sequence, did not find expected ',' or ']'"
    assert str(YamlError(message, offset)) == message


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        (
            "a: &\tb\n",
            "while scanning an anchor, did not find expected alphabetic or numeric character",
            4,
        ),
        ("a:\n\tb: 1\n", "a tab, where YAML allows only spaces: indent by spaces", 3),
        ("a: 1\n\tb: 1\n", "a tab, where YAML allows only spaces: indent by spaces", 5),
        ("- é\n-\tb: 1\n  c: 2\n", "a tab, where YAML allows only spaces: indent by spaces", 5),
        ("image: @x\n", "a value cannot begin with @: quote it", 7),
        ("a: [`b`]\n", "a value cannot begin with `: quote it", 4),
        ("a: %b\n", "a value cannot begin with %: quote it", 3),
    ],
)
def test_a_character_that_yaml_does_not_allow_is_named_with_what_to_write(
    text: str, message: str, offset: int
) -> None:
    assert refusal(text) == (message, offset)


def test_a_tag_makes_a_float_of_the_largest_integer_of_64_bits() -> None:
    assert document("a: !!float 9223372036854775807").value == {"a": 9223372036854776000}
    assert "not a valid float" in refusal("a: !!float 9223372036854775808")[0]


def test_integers_of_any_length_are_read() -> None:
    assert document("a: " + "1" * 10_000).value == {"a": "1" * 10_000}
    assert document("a: 0" + "7" * 10_000).value == {"a": "0" + "7" * 10_000}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        "- " * 100_000,
        "".join(" " * depth + "a:\n" for depth in range(1000)),
    ],
    ids=["lists", "mappings", "dashes", "indents"],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert "levels deep" in refusal(text)[0]


def test_nesting_up_to_the_limit_is_read() -> None:
    assert document("[" * 100 + "]" * 100).value
    assert "levels deep" in refusal("[" * 101 + "]" * 101)[0]
    assert document("[" * 3 + "]" * 3, Limits(max_depth=3)).value == [[[]]]
    for limit in (2, 3):
        assert document("{a: " * limit + "}" * limit, Limits(max_depth=limit)).value
        deeper = "{a: " * (limit + 1) + "}" * (limit + 1)
        assert "levels deep" in refusal(deeper, Limits(max_depth=limit))[0]


def test_the_start_of_a_line() -> None:
    lines = Lines("ab\ncd\ne")
    assert [lines.start(line) for line in (1, 2, 3, 4)] == [0, 3, 6, 7]


def test_aliases_cannot_pile_up_depth() -> None:
    chain = "".join(f"a{link}: &a{link} {'[' * 30}*a{link - 1}{']' * 30}\n" for link in range(1, 5))
    assert "levels deep" in refusal("a0: &a0 x\n" + chain)[0]
    shallow = "".join(f"a{link}: &a{link} [*a{link - 1}]\n" for link in range(1, 50))
    assert document("a0: &a0 x\n" + shallow).value


def bomb(link: Callable[[int], str]) -> str:
    return "a0: &a0 {x: 1, y: 2}\n" + "".join(
        f"a{level}: &a{level} {link(level - 1)}\n" for level in range(1, 40)
    )


@pytest.mark.parametrize(
    "text",
    [
        bomb(lambda level: "[" + f"*a{level}, " * 9 + "]"),
        bomb(lambda level: f"{{p: *a{level}, q: *a{level}}}"),
        bomb(lambda level: f"{{r{level}: {{<<: [*a{level}, *a{level}]}}, s{level}: *a{level}}}"),
        "a: &a {" + "".join(f"k{key}, " for key in range(1000)) + "}\nb:\n" + "- <<: *a\n" * 1000,
        "a: &a x\nb: [" + "*a, " * 100_001 + "]",
    ],
    ids=["lists", "mappings", "merges", "wide merges", "scalars"],
)
def test_alias_bombs_are_refused(text: str) -> None:
    assert "aliases add more than" in refusal(text)[0]


def test_a_document_may_use_aliases_freely_within_the_limit() -> None:
    text = "a: &a [1, 2]\nb: [" + "*a, " * 100 + "]"
    assert document(text).value == {"a": [1, 2], "b": [[1, 2]] * 100}
    assert "more than 299 nodes" in refusal(text, Limits(max_alias_nodes=299))[0]


@pytest.mark.slow
def test_a_large_document_is_read_and_a_huge_one_refused() -> None:
    item = "- name: web\n  labels: {app: web}\n  ports: [80, 443]\n  image: registry.local/web:1\n"
    value = document(item * 25_000).value
    assert isinstance(value, list)
    assert len(value) == 25_000
    assert "nodes in one document" in refusal("[" + "a," * 600_000)[0]
    assert "nodes in one document: give it in parts" in refusal("[a, b]", Limits(max_nodes=5))[0]


@pytest.mark.parametrize("empty", ["{}", "[]"])
def test_empty_collections_count_as_nodes(empty: str) -> None:
    text = "[" + f"{empty}, " * 100 + "]"
    assert "nodes in one document" in refusal(text, Limits(max_nodes=100))[0]


def test_many_tag_directives_are_refused() -> None:
    text = "".join(f"%TAG !a{line}! tag:b\n" for line in range(50_000)) + "---\na: b\n"
    assert "%TAG" in refusal(text)[0]


TOKENS = (
    *"abn01~-?:,[]{}&*!|>%@`'\"#\\é😀\t\r\ufeff\x85\u2028\x01\ud800",
    *(" ", "  ", "\n", "\n  ", "- ", "a: ", ": ", " #", "&a ", "*a", "<<: ", "!!int ", "!%ff"),
    *("...", "---", "\n...\n", "\n---\n", "%TAG ! x\n", "|+\n ", ">2\n", '"\\u', ".inf", "1e9"),
)


@given(st.lists(st.sampled_from(TOKENS), max_size=20).map("".join))
def test_only_a_yaml_error_is_raised_with_an_offset_in_the_text(text: str) -> None:
    for chunk in split(text):
        try:
            found = read(chunk)
        except YamlError as error:
            offset = error.offset
        else:
            offset = chunk.start
            if found is not None:
                json.dumps(found.value, allow_nan=False)
                list(places(found.place, found.value))
        assert chunk.start <= offset <= chunk.start + len(chunk.text)


# Files


def test_split_cuts_where_kubectl_does() -> None:
    text = "a: 1\n--- # c\nb: |\n  ---\n ---\n---   \n---\nc: 3"
    chunks = list(split(text))
    assert [chunk.text for chunk in chunks] == ["a: 1\n", "b: |\n  ---\n ---\n", "---\nc: 3"]
    assert [chunk.line for chunk in chunks] == [1, 3, 7]


@pytest.mark.parametrize("separator", ["---x", "--- x", "----", "--- |", "--- {a: 1}", "---\ta"])
def test_a_separator_with_content_breaks_only_its_own_chunk(separator: str) -> None:
    text = f"a: 1\n{separator}\nb: 2\n---\nc: 3\n"
    first, second, third = split(text)
    assert read(first) is not None
    with pytest.raises(YamlError, match="only a comment may follow ---") as caught:
        read(second)
    assert caught.value.offset == text.index(separator) + 3
    assert (third.text, third.start, third.line) == ("c: 3\n", text.index("c:"), 5)


def test_a_broken_chunk_does_not_hide_the_others() -> None:
    text = "a: {{ .Values.x }}\n---\nb: [\n---\nc: 3\n"
    values: list[Json] = []
    for chunk in split(text):
        try:
            found = read(chunk)
        except YamlError as error:
            values.append(error.offset)
        else:
            values.append(found.value if found else None)
    assert values == [4, 28, {"c": 3}]


@given(st.lists(st.sampled_from(["---", "--- # c", "--- x", "a: 1", "\n", "\n", "\r\n", "é"])))
def test_chunks_are_slices_of_the_file_and_lose_only_separators(parts: list[str]) -> None:
    text = "".join(parts)
    end = 0
    for chunk in split(text):
        assert text[chunk.start : chunk.start + len(chunk.text)] == chunk.text
        assert line_and_column(text, chunk.start) == (chunk.line, 1)
        assert re.fullmatch(r"(---\s*(#.*)?\n)?", text[end : chunk.start])
        end = chunk.start + len(chunk.text)
    assert re.fullmatch(r"(---\s*(#.*)?\n?)?", text[end:])


@given(st.text("ab\n\r\u2028é"))
def test_lines_end_at_newlines_only(text: str) -> None:
    lines = Lines(text)
    for offset in range(len(text) + 1):
        before = text[:offset].split("\n")
        assert lines.line_and_column(offset) == line_and_column(text, offset)
        assert lines.line_and_column(offset) == (len(before), len(before[-1]) + 1)


# Random documents

STRINGS = st.text("ab:#-?'\"[]{},&*!|>% \té😀\n0~", max_size=6) | st.sampled_from(
    ["a\n", "a\nb\n", "a\n  b #\n", "a\n\nb", "a: b\n\tc", "no", "1e3", "a b"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | STRINGS
SCALARS |= st.sampled_from([1.5, -0.25, 1e-7])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)


class Writer:
    """Writes a value in a YAML style that `draw` chooses."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw

    def one_of(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def indent(self) -> int:
        return int(self.draw(st.sampled_from((1, 2, 4))))

    def once_in(self, times: int) -> bool:
        return bool(self.draw(st.integers(1, times)) == times)

    def inline(self, value: Json) -> str:
        gap = self.one_of("", " ")
        if isinstance(value, list):
            items = (self.inline(item) + self.one_of("", " ") for item in value)
            return f"[{gap}{f',{gap}'.join(items)}]"
        if isinstance(value, dict):
            entries = (f"{self.inline(key)}: {self.inline(item)}" for key, item in value.items())
            return f"{{{gap}{', '.join(entries)}{gap}}}"
        if not isinstance(value, str):
            return self.one_of("null", "~") if value is None else json.dumps(value)
        choices = [json.dumps(value, ensure_ascii=False)]
        if "\n" not in value:
            choices.append("'" + value.replace("'", "''") + "'")
        if re.fullmatch("[abé😀]( ?[abé😀])*", value):
            choices.append(value)
        return self.one_of(*choices)

    def value(self, value: Json, indent: int) -> str:
        """The text after a colon or dash."""
        if isinstance(value, dict | list) and value and not self.once_in(3):
            lines = self.block(value, indent + self.indent())
            return self.one_of("", "  # c") + "\n" + "\n".join(lines)
        if isinstance(value, str) and re.match("[ab]", value) and self.once_in(2):
            pad = " " * (indent + self.indent())
            lines = value.removesuffix("\n").split("\n")
            body = "\n".join(pad + line if line else "" for line in lines)
            if value.endswith("\n\n"):
                return f" |+\n{body}"
            return f" {'|' if value.endswith(chr(10)) else '|-'}\n{body}"
        return self.one_of(" ", "   ") + self.inline(value) + self.one_of("", " # c: 'd'", "  ")

    def block(self, value: dict[str, Json] | list[Json], indent: int) -> list[str]:
        """The lines of a block collection."""
        lines: list[str] = []
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if self.once_in(3) and not (lines and "|+" in lines[-1]):
                lines.append(self.one_of("# a: b", ""))
            head = f"{self.inline(key)}:" if isinstance(value, dict) else "-"
            lines.append(" " * indent + head + self.value(item, indent))
        return lines


@st.composite
def written(draw: Callable[..., Any]) -> tuple[str, Json]:
    """A text, and the value that it means."""
    writer = Writer(draw)
    value = draw(VALUES)
    if isinstance(value, dict | list) and value and not writer.once_in(4):
        text = "\n".join(writer.block(value, 2 * writer.once_in(3))) + "\n"
    else:
        text = writer.inline(value) + "\n"
    if writer.once_in(3):
        text = text.replace("\n", "\r\n")
    return writer.one_of("", "", "\ufeff", "# c\n") + text, value


@given(written())
def test_a_written_value_is_read_back(text_and_value: tuple[str, Json]) -> None:
    text, value = text_and_value
    assert same(document(text).value, value)


@given(VALUES)
def test_json_is_read_as_json(value: Json) -> None:
    assert same(document(json.dumps(value, ensure_ascii=False, indent=2)).value, value)


@given(written())
def test_the_span_of_a_value_covers_the_value_and_that_of_a_key_the_key(
    text_and_value: tuple[str, Json],
) -> None:
    text, value = text_and_value
    for path, place, item in places(document(text).place, value):
        if place.style in {"plain", "single", "double", "flow"}:
            assert same(document(text[place.start : place.end]).value, item)
        if place.key_start >= 0:
            assert document(text[place.key_start : place.key_end]).value == path[-1]
            assert re.fullmatch(r"\s*:(\s|#.*)*", text[place.key_end : place.start])


@given(written())
def test_spans_are_nested_and_ordered(text_and_value: tuple[str, Json]) -> None:
    text, value = text_and_value
    for _, place, _ in places(document(text).place, value):
        inside = place.inside.values() if isinstance(place.inside, dict) else place.inside or ()
        end = place.start
        for child in inside:
            start = child.key_start if child.key_start >= 0 else child.start
            assert end <= start <= child.start <= child.end <= place.end
            end = child.end
        if place.style == "block":
            assert end == place.end


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_their_value(number: float) -> None:
    value = document(f"- {number!r}").value
    assert isinstance(value, list)
    (found,) = value
    assert isinstance(found, int | float)
    assert math.isclose(found, number, rel_tol=1e-15)
