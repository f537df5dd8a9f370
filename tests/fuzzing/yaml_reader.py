"""The reader of YAML: bytes are documents or a clear error, and places are in the text."""

from __future__ import annotations

import json
from typing import Any

from kubeyaml import (
    CachedReader,
    Chunk,
    Document,
    EncodingError,
    Lines,
    Place,
    YamlError,
    decode,
    line_and_column,
    read,
    split,
)
from kubeyaml.patch.model import are_identical
from kubeyaml.writing import write_yaml


def check(data: bytes) -> None:
    """Read `data` as a file of manifests."""
    try:
        text = decode(data)
    except EncodingError:
        return
    chunks = list(split(text))
    _check_chunks(text, chunks)
    cached = CachedReader(1000)
    for chunk in chunks:
        document = _read(chunk, text)
        if document is None:
            continue
        assert chunk.start <= document.place.start <= document.place.end <= document.end
        _check_places(text, document.value, document.place)
        _check_duplicates(text, document)
        for again in (cached.read(chunk), cached.read(chunk)):
            assert again is not None
            assert are_identical(again.value, document.value)
            assert again.duplicates == document.duplicates
        _check_written(document)


def _check_chunks(text: str, chunks: list[Chunk]) -> None:
    end = 0
    for chunk in chunks:
        assert chunk.start >= end, "chunks overlap"
        end = chunk.start + len(chunk.text)
        assert text[chunk.start : end] == chunk.text
        assert chunk.line == 1 + text.count("\n", 0, chunk.start)


def _read(chunk: Chunk, text: str) -> Document | None:
    try:
        return read(chunk)
    except YamlError as error:
        assert error.message
        assert 0 <= error.offset <= len(text), "an error outside of the text"
        assert line_and_column(text, error.offset) == Lines(text).line_and_column(error.offset)
        return None


def _check_places(text: str, value: Any, place: Place) -> None:
    """Compare the tree of places with that of values, and each place with the text."""
    waiting: list[tuple[Any, Place, Place | None]] = [(value, place, None)]
    for current, here, parent in waiting:
        assert 0 <= here.start <= here.end <= len(text), "a place outside of the text"
        assert here.key_start <= here.key_end <= len(text)
        if parent is not None and not {"alias", "merge"} & {here.note, parent.note}:
            assert parent.start <= here.start, "a value before its parent"
            assert here.end <= parent.end, "a value behind its parent"
        if here.style in {"single", "double"} and not here.note:
            assert text[here.start] == text[here.end - 1] == "'\""[here.style == "double"]
        inside = here.inside
        if isinstance(current, dict):
            assert isinstance(inside, dict)
            assert inside.keys() == current.keys()
        elif isinstance(current, list):
            assert isinstance(inside, list)
            assert len(inside) == len(current)
        else:
            assert inside is None
        if here.note != "alias":  # else the same place again, and perhaps for many times
            steps = current if isinstance(current, dict) else range(len(inside or ()))
            waiting += [(current[step], inside[step], here) for step in steps]  # type: ignore[index]


def _check_duplicates(text: str, document: Document) -> None:
    for duplicate in document.duplicates:
        assert duplicate.path
        assert document.start <= duplicate.key_start < len(text)


def _check_written(document: Document) -> None:
    """Write the value as YAML, and read it again."""
    if len(json.dumps(document.value)) > 10 * (document.end - document.start) + 100:
        return  # many aliases
    again = read(Chunk(write_yaml(document.value)))
    assert again is not None or document.value is None
    assert are_identical(again.value if again else None, document.value), "written otherwise"
