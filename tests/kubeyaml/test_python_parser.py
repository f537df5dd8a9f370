"""PyYAML's own parser, which reads manifests in a browser, beside libyaml's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeyaml import Chunk, Document, Limits, Place, YamlError, events, read, split
from kubeyaml.python_parser import PythonParser
from tests.kubeyaml.test_reader import ANSWERS, same
from tests.testkit.paths import ROOT

CASES = sorted((ROOT / "tests" / "cases").glob("*/*.yaml"))
# Texts that kubectl refuses and this parser does not.
ACCEPTED = {"a: |\n  \tx\n", "%FOO x\n---\na: 1"}

ODD = [
    'a: "\\ud83d\\ude00"',
    'a: "\\U00110000"',
    'a: "\\Uffffffff"',
    'a: "it\\\'s"',
    "a: \ud83d",
    "é: \x07",
    "a: 'x\n\n  y'\nb: |+\n  c\n\nd: >-\n  e\n",
    "{a:, b}",
    "{a :, b}",
    "a: 1\n\ufeffb: 2",
    "\ufeff  a: 1\n",
    "a:\n\ufeff  b: 2\n\ufeff# c\n",
    "a: {b: c}\n\ufeff",
    "{a: b, ? c : d, e: }",
    "[a: 1, 'b':2, {c}]",
    '{"a":1,"b":"c"}',
    "&x a: *x\nb: &y {c: d}\ne: *y\n<<: *y",
    "!!str a: !!int 1\nb: ! 2",
    "? a\n: b\n? [c]\n: d",
    "a:\r\n  - b\r\n  -\r\n",
    "a: b\n...\nc: d",
    "%YAML 1.1\n---\na: 1",
    "%TAG ! tag:x,2000:\n---\na: !y b",
    "\ta: b",
    "a:\tb\tc\t# d\ne: |\n  f\ng: h\t\n\ti: j\n",
    "a: [b,\tc\t]\t\nd:\t'e'\t# f\n",
    "a: b\t\n  c\td\ne:\t- f",
    "a: | \t\n  b\nc: >-\t# d\n  e\n",
    "a: |\t\n  b\nc: |#\n  d\ne: >-#\n  f\ng: |2+\t# h\n   i\n\n",
    *("a: | \tb\n", "a: |0\n  b\n", "a: |11\n  b\n", "a: |+-\n  b\n", "a: |b\n"),
    "- - - a\n    - b\n  - c",
    "a: b # c\n#d\ne: #f\n  g",
    "a" * 1100 + ": b",
    "[" * 500,
]


def spans(place: Place) -> Any:
    """The place of a value and of all values in it."""
    inside: Any = place.inside
    if isinstance(inside, dict):
        inside = {key: spans(one) for key, one in inside.items()}
    elif isinstance(inside, list):
        inside = [spans(one) for one in inside]
    own = (place.start, place.end, place.key_start, place.key_end, place.style, place.note)
    return own, inside


def documents(file: Path) -> list[Any]:
    """The documents of a file, with the places of all values."""
    found = (read(chunk, Limits()) for chunk in split(file.read_text(encoding="utf-8")))
    return [shown(document) if document else None for document in found]


def shown(document: Document) -> Any:
    """A document as values that can be compared."""
    return document._replace(place=spans(document.place))


def test_it_reads_manifests_as_libyaml_does(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = CASES[::8]
    expected = [documents(file) for file in chosen]
    monkeypatch.setattr(events, "EventParser", PythonParser)
    for file, known in zip(chosen, expected, strict=True):
        assert documents(file) == known, file


def test_it_means_what_kubectl_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EventParser", PythonParser)
    accepted = set()
    for quoted, answer in ANSWERS:
        text = json.loads(quoted)
        try:
            found = read(Chunk(text))
        except YamlError:
            assert answer == "error", quoted
            continue
        if answer == "error":
            accepted.add(text)
        else:
            assert same(found.value if found else None, json.loads(answer)), quoted
    assert accepted == ACCEPTED


@pytest.mark.parametrize("text", ["a: [1", "a:\n\tb: 1\n", "a: *x\n", "a: 'x\n", "{a: 1}}", "\x01"])
def test_it_refuses_what_is_no_yaml(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EventParser", PythonParser)
    with pytest.raises(YamlError):
        read(Chunk(text), Limits())


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_read_as_by_libyaml(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = parts(text)
    monkeypatch.setattr(events, "EventParser", PythonParser)
    assert parts(text) == theirs


def parts(text: str) -> list[Any]:
    """Return the documents of a text, each with its places, or the line in which it is refused."""
    found: list[Any] = []
    for chunk in split(text):
        try:
            document = read(chunk, Limits())
        except YamlError as problem:
            found.append(f"refused in line {text.count(chr(10), 0, problem.offset) + 1}")
        else:
            found.append(shown(document) if document else None)
    return found
