"""Tests of the reader that reads equal texts once."""

from __future__ import annotations

import pytest

from kubeyaml import CachedReader, Chunk, YamlError, read, split

DOCUMENT = "a: &x {b: [1, two], b: 3}\nc: *x\nd: |\n  text\n"
TEXT = f"{DOCUMENT}---\n# between\ne: 1\n---\n{DOCUMENT}---\n{DOCUMENT}"


def test_equal_texts_have_places_of_their_own() -> None:
    reader = CachedReader(10_000)
    for chunk in split(TEXT):
        expected, found = read(chunk), reader.read(chunk)
        assert expected is not None
        assert found is not None
        assert found.value == expected.value
        assert (found.start, found.end, found.line) == (expected.start, expected.end, expected.line)
        assert found.duplicates == expected.duplicates
        for path in ((), ("a", "b"), ("d",), ("e",)):
            (place, _), (other, _) = found.place.nearest(path), expected.place.nearest(path)
            assert (place.start, place.end, place.key_start) == (
                *(other.start, other.end, other.key_start),
            )


def test_equal_texts_share_their_value_within_the_memory() -> None:
    first, last = Chunk(DOCUMENT), Chunk(DOCUMENT, start=100, line=9)
    for size, is_shared in ((len(DOCUMENT), True), (len(DOCUMENT) - 1, False)):
        reader = CachedReader(size)
        one, two = reader.read(first), reader.read(last)
        assert one is not None
        assert two is not None
        assert (one.value is two.value) is is_shared


def test_errors_are_at_their_place_each_time() -> None:
    reader = CachedReader(10_000)
    for start in (0, 50):
        with pytest.raises(YamlError) as caught:
            reader.read(Chunk("a: [\n", start=start))
        assert caught.value.offset >= start
    assert reader.read(Chunk("# nothing\n")) is reader.read(Chunk("# nothing\n")) is None
