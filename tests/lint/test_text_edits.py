"""A property of the edits between two texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lint.fix.changes import text_edits

TEXTS = st.text(alphabet="ab \r\n", max_size=30)


@given(before=TEXTS, old=TEXTS, new=TEXTS)
def test_edits_turn_one_text_into_the_other(before: str, old: str, new: str) -> None:
    text, last = before + old, len(before) + len(old)
    for edit in reversed(list(text_edits(old, new, len(before)))):
        assert len(before) <= edit.start <= edit.end <= last, "in order, and not overlapping"
        last = edit.start
        text = text[: edit.start] + edit.text + text[edit.end :]
        for place in (edit.start - len(before), edit.end - len(before)):
            assert place == 0 or old[place - 1 : place + 1] != "\r\n", "inside a line break"
    assert text == before + new


def test_edits_are_as_small_as_they_can_be() -> None:
    (edit,) = text_edits("a: 1\r\nvalue: all # why\r\n", "a: 1\r\nvalue: void # why\r\n")
    assert edit == (13, 16, "void")
