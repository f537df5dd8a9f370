"""What a check says: one row for each thing that it looked at."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class State(enum.Enum):
    """What is known about a thing. What nobody could look at is NOT_KNOWN, never OK."""

    OK = "ok"
    WRONG = "wrong"
    NOT_KNOWN = "not known"


class Row(NamedTuple):
    """What the check `check` says about `subject`; `remedy` is what to do unless it is ok."""

    check: str
    subject: str
    state: State
    message: str
    remedy: str = ""


def ok(check: str, subject: str, message: str) -> Row:
    """A row about something that is as it should be."""
    return Row(check, subject, State.OK, message)


def wrong(check: str, subject: str, message: str, remedy: str) -> Row:
    """A row about something that is not as it should be."""
    return Row(check, subject, State.WRONG, message, remedy)


def not_known(check: str, subject: str, message: str, remedy: str) -> Row:
    """A row about something that could not be looked at."""
    return Row(check, subject, State.NOT_KNOWN, message, remedy)


_NAMED = 3


def names(found: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def exit_status(rows: Iterable[Row], *, allow_not_known: bool) -> int:
    """1 if something is wrong, else 3 if something is not known, unless allowed, else 0."""
    states = {row.state for row in rows}
    if State.WRONG in states:
        return 1
    return 3 if State.NOT_KNOWN in states and not allow_not_known else 0
