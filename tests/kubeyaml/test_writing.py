"""Tests of writing values as YAML that kubectl reads as the same values."""

from __future__ import annotations

from typing import Any

from kubeyaml import Chunk, read
from kubeyaml.model import Json
from kubeyaml.writing import write_yaml


def test_entries_stay_in_their_order_and_repeated_values_are_written_out() -> None:
    labels: Json = {"z": "1", "a": "N"}
    assert write_yaml({"c": labels, "b": labels, "é": [1.5, None, "two words"]}) == (
        "c:\n  z: '1'\n  a: 'N'\nb:\n  z: '1'\n  a: 'N'\né:\n- 1.5\n- null\n- two words\n"
    )
    assert write_yaml({"c": {"z": "y"}, "a": [1]}, flow=True) == "{c: {z: 'y'}, a: [1]}\n"


def test_what_is_written_is_read_back() -> None:
    value: dict[str, Any] = {"texts": ["N", "1_000", "0o7", ".inf", "~", "!!int x", "a\nb", ""]}
    found = read(Chunk(write_yaml(value)))
    assert found is not None
    assert found.value == value
