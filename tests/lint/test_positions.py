"""Properties of positions in the Language Server Protocol, in each of its units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.types import Position, PositionEncodingKind

from lint.language_server.diagnostics import Positions

CODECS = {
    PositionEncodingKind.Utf8: ("utf-8", 1),
    PositionEncodingKind.Utf16: ("utf-16-le", 2),
    PositionEncodingKind.Utf32: ("utf-32-le", 4),
}
TEXTS = st.text(alphabet="aé你😀\t\u2028\x85\r\n\ufeff", max_size=40)


def lines_of(text: str) -> list[str]:
    r"""The lines as the protocol counts them: "\r\n", "\n" and "\r" end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@pytest.mark.parametrize("encoding", CODECS)
@given(text=TEXTS)
def test_a_position_is_a_line_and_the_units_before_it(
    encoding: PositionEncodingKind, text: str
) -> None:
    codec, size = CODECS[encoding]
    positions = Positions(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n" and offset:
            continue  # inside a line break
        found = positions.position_at(offset)
        *above, last = lines_of(text[:offset])
        assert (found.line, found.character) == (len(above), len(last.encode(codec)) // size)
        assert positions.offset(found) == offset


@given(text=TEXTS)
def test_a_position_behind_the_text_is_its_end(text: str) -> None:
    positions = Positions(text, PositionEncodingKind.Utf16)
    last = lines_of(text)
    assert positions.offset(Position(10**6, 0)) == len(text)
    assert positions.offset(Position(len(last) - 1, 10**6)) == len(text)
    assert positions.offset(Position(0, 10**6)) == len(last[0])
