"""Tests of writing values as YAML that kubectl reads as the same values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


_ODD = "ab :#-\"'\n\t\\%@!&*|>{}[],?~01.é\u2028\x85 "
# What is read from files and from API servers has no halves of surrogates.
_TEXTS = st.text(st.sampled_from(_ODD) | st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(_TEXTS, lambda held: st.lists(held) | st.dictionaries(_TEXTS, held))


@pytest.mark.parametrize("flow", [False, True])
@given(value=_VALUES)
def test_any_text_is_read_back(value: Json, flow: bool) -> None:  # noqa: FBT001  # as pytest gives it
    found = read(Chunk(write_yaml({"value": value}, flow=flow)))
    assert found is not None
    assert found.value == {"value": value}
