"""Tests of texts that kubectl reads and a plain YAML parser does not."""

from __future__ import annotations

import pytest

from kubeyaml import Chunk, Document, YamlError, read, split
from kubeyaml.model import Json

SEVERAL = '{"a": 1}{"b": [2]}\n\n{\n"c": "}{"}\n---\n{"d": 4} {"e": 5}\n'


def documents(text: str) -> list[Document]:
    found = (read(chunk) for chunk in split(text))
    return [document for document in found if document is not None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'''"it\'s"''', "it's"),
        (r'''"it\\'s"''', r"it\'s"),
        (r'''"it\\\'s"''', r"it\'s"),
        (r"it\'s", r"it\'s"),
        (r"['it\', \']", ["it\\", r"\'"]),
        ("|\n  it\\'s", r"it\'s"),
        (r"""{"k\'": "\"\'\""}""", {"k'": '"\'"'}),
        (r'''"\' \uE000 \ue001"''', "' \ue000 \ue001"),
        ('"\\\' \ue000"', "' \ue000"),
    ],
)
def test_an_escaped_quote_is_read_as_by_kubectl(text: str, value: Json) -> None:
    """Only in double quotes is it an escape. The values are kubectl's."""
    document = read(Chunk(text))
    assert document is not None
    assert document.value == value
    assert document.place.end == len(text)


def test_a_text_with_every_candidate_is_refused() -> None:
    taken = "".join(map(chr, range(0xE000, 0xE040)))
    with pytest.raises(YamlError):
        read(Chunk(f'"\\\' {taken}"'))


def test_json_objects_need_no_separator() -> None:
    found = documents(SEVERAL)
    assert [d.value for d in found] == [{"a": 1}, {"b": [2]}, {"c": "}{"}, {"d": 4}, {"e": 5}]
    assert [d.line for d in found] == [1, 1, 1, 6, 6]
    assert all(SEVERAL[d.place.start] == "{" for d in found)


def test_kubectl_ignores_a_second_object_in_other_files() -> None:
    with pytest.raises(YamlError):
        documents("# a comment\n" + SEVERAL)


@pytest.mark.parametrize("text", ["{a: 1}", "{a: {b: [c]}}\n# end\n", '{"a": 1,}', "{}"])
def test_yaml_in_braces_is_one_document(text: str) -> None:
    (chunk,) = [piece for piece in split(text) if read(piece)]
    assert chunk.text.strip() in text
    assert len(documents(text)) == 1
