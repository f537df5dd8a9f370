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
ACCEPTED = {'a: "\\ud83d\\ude00"', "a: |\n  \tx\n", "%FOO x\n---\na: 1"}


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
    monkeypatch.setattr(events, "CParser", PythonParser)
    for file, known in zip(chosen, expected, strict=True):
        assert documents(file) == known, file


def test_it_means_what_kubectl_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CParser", PythonParser)
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
    monkeypatch.setattr(events, "CParser", PythonParser)
    with pytest.raises(YamlError):
        read(Chunk(text), Limits())
