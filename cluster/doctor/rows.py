"""The rows that checks return, and how they are shown: as a table with remedies, or as data."""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cluster.gpus.tables import Table, render
from terminal import printable

# A check returns one row for each thing that it looked at.


class State(enum.Enum):
    """The state of a thing. It is NOT_KNOWN, never OK, if the thing could not be examined."""

    OK = "ok"
    WRONG = "wrong"
    NOT_KNOWN = "not known"


class Row(NamedTuple):
    """The result of `check` for `subject`; `remedy` is what to do unless the state is ok.

    `names` are all that it is about, such as nodes or pods; the text may name a few of them.
    """

    check: str
    subject: str
    state: State
    message: str
    remedy: str = ""
    names: tuple[str, ...] = ()


def ok(check: str, subject: str | Sequence[str], message: str, *, names: Sequence[str] = ()) -> Row:
    """A row about something that is as it should be."""
    return _row(check, subject, State.OK, message, "", names)


def wrong(
    check: str,
    subject: str | Sequence[str],
    message: str,
    remedy: str,
    *,
    names: Sequence[str] = (),
) -> Row:
    """A row about something that is not as it should be."""
    return _row(check, subject, State.WRONG, message, remedy, names)


def not_known(
    check: str,
    subject: str | Sequence[str],
    message: str,
    remedy: str,
    *,
    names: Sequence[str] = (),
) -> Row:
    """A row about something that could not be looked at."""
    return _row(check, subject, State.NOT_KNOWN, message, remedy, names)


def _row(
    check: str,
    subject: str | Sequence[str],
    state: State,
    message: str,
    remedy: str,
    names: Sequence[str],
) -> Row:
    """The row; it is about all names of the subject, unless `names` says more."""
    subjects = (subject,) if isinstance(subject, str) else subject
    return Row(check, first_few(subjects), state, message, remedy, tuple(names or subjects))


_NAMED = 3


def first_few(found: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def exit_status(rows: Iterable[Row], *, allow_not_known: bool) -> int:
    """1 if something is wrong, else 3 if something is not known, unless allowed, else 0."""
    states = {row.state for row in rows}
    if State.WRONG in states:
        return 1
    return 3 if State.NOT_KNOWN in states and not allow_not_known else 0


VERSION = 1
"""Grows when a field of the document changes its meaning or goes away."""
_HEADER = ("STATE", "CHECK", "SUBJECT", "MESSAGE")
_COLORS = {State.OK: "32", State.WRONG: "31", State.NOT_KNOWN: "33"}


def as_table(
    rows: Sequence[Row], *, color: bool, wide: bool = False, width: float = math.inf
) -> str:
    """The table and its sums; with `wide`, what to do about a row is in its last column.

    Else it is below the table: once for the rows of one check with the same remedy. Cells are
    folded where lines would be wider than `width`.
    """
    cells = [(row.state.value, row.check, row.subject, row.message) for row in rows]
    table = Table(_HEADER, [*cells])
    if wide:
        remedies = [(" ".join(row.remedy.split()),) for row in rows]
        lines_of = zip(cells, remedies, strict=True)
        table = Table((*_HEADER, "REMEDY"), [cell + remedy for cell, remedy in lines_of])
    header, *lines = render(table, width=width).splitlines()
    if color:
        lines = [*map(_colored, lines)]
    counts = ", ".join(f"{sum(r.state is state for r in rows)} {state.value}" for state in State)
    return "\n".join((header, *lines, "")) + ("" if wide else _to_do(rows)) + f"\n{counts}\n"


def as_headline(text: str, state: State, *, color: bool) -> str:
    """The first line, in the colour of a state, and an empty one."""
    line = printable(text)
    return f"\x1b[{_COLORS[state]}m{line}\x1b[0m\n\n" if color else f"{line}\n\n"


def _to_do(rows: Sequence[Row]) -> str:
    subjects: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # each once, in order
    for row in rows:
        if row.remedy:
            subjects[row.check, row.remedy][row.subject] = None
    remedies = "".join(
        f"- {printable(check)}, {printable(first_few([*found]))}:\n  {_indented(remedy)}\n"
        for (check, remedy), found in subjects.items()
    )
    return f"\nWhat to do:\n{remedies}" if remedies else ""


def to_document(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as the object that docs/doctor.md describes."""
    return {
        "version": VERSION,
        "rows": [{**row._asdict(), "state": row.state.value} for row in rows],
    }


def _colored(line: str) -> str:
    """`line` with its state in colour, if it is the first of a row."""
    state = next((state for state in State if line.startswith(state.value)), None)
    if state is None:
        return line
    return f"\x1b[{_COLORS[state]}m{state.value}\x1b[0m{line.removeprefix(state.value)}"


def _indented(text: str) -> str:
    """A remedy of several lines, such as commands to run, below the first."""
    return "\n  ".join(map(printable, text.splitlines()))
