"""Tests of room that callers share."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.fair_share import FairShare, NoRoomError, Owner

LIMIT = 12
OWNERS = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]))


@given(st.lists(st.tuples(OWNERS, st.integers(min_value=1, max_value=LIMIT)), max_size=30))
def test_whoever_has_most_gives_way(requests: list[tuple[Owner, int]]) -> None:
    """No request exceeds the limit, and no caller loses anything to one that has more."""
    room = FairShare(LIMIT)
    held: dict[int, tuple[Owner, int]] = {}
    with ExitStack() as stack:
        for number, (owner, size) in enumerate(requests):
            before = dict(held)
            taken = Counter[str]()
            for (caller, _), units in before.values():
                taken[caller] += units

            def give_back(_is_own: bool, number: int = number) -> None:  # noqa: FBT001
                del held[number]

            try:
                stack.enter_context(room.hold(owner, size, give_back))
            except NoRoomError:
                assert sum(taken.values()) + size > LIMIT
                assert held == before
            else:
                held[number] = (owner, size)
            for lost in before.keys() - held.keys():
                assert before[lost][0] != owner
                assert before[lost][0][0] == owner[0] or taken[before[lost][0][0]] > taken[owner[0]]
            assert room.taken == sum(units for _, units in held.values()) <= LIMIT
    assert room.taken == 0


def test_a_caller_with_nothing_is_kept_out_by_no_other() -> None:
    room, lost = FairShare(LIMIT), list[bool]()
    with ExitStack() as stack:
        for number in range(LIMIT):
            stack.enter_context(room.hold(("greedy", str(number)), 1, lost.append))
        for _ in range(LIMIT // 2):
            stack.enter_context(room.hold(("modest", "x"), 1, lost.append))
        assert lost == [False] * (LIMIT // 2)
        with pytest.raises(NoRoomError) as error:
            stack.enter_context(room.hold(("modest", "x"), 1, lost.append))
        assert error.value.is_own


def test_a_request_that_does_not_get_enough_takes_nothing_from_others() -> None:
    """The largest caller has more than it would have, but not so much that it fits."""
    room, lost = FairShare(LIMIT), list[bool]()
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(room.hold(("a", "x"), 4, lost.append))
        stack.enter_context(room.hold(("b", "x"), 4, lost.append))
        with pytest.raises(NoRoomError):
            room.require(("c", "x"), 7)
        with pytest.raises(NoRoomError):
            stack.enter_context(room.hold(("c", "x"), 7, lost.append))
    assert lost == []


def test_a_request_that_exceeds_the_limit_alone_takes_nothing_from_others() -> None:
    room, lost = FairShare(LIMIT), list[bool]()
    with (
        room.hold(("a", "x"), 1, lost.append),
        pytest.raises(NoRoomError),
        room.hold(("b", "x"), LIMIT + 1, lost.append),
    ):
        pass
    assert lost == []
