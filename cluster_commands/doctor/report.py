"""Print the rows: as a table with what to do below, or as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from cluster_commands.doctor.rows import Row, State, names
from cluster_commands.gpus.rows import Table
from cluster_commands.gpus.tables import render
from lint.report import printable

VERSION = 1
"""Grows when a field of the JSON changes its meaning or goes away."""
_HEADER = ("STATE", "CHECK", "SUBJECT", "MESSAGE")
_COLORS = {State.OK: "32", State.WRONG: "31", State.NOT_KNOWN: "33"}


def as_table(rows: Sequence[Row], *, color: bool) -> str:
    """The table, and below it what to do about rows that are not ok: once for rows of one check."""
    cells = [(row.state.value, row.check, row.subject, row.message) for row in rows]
    header, *lines = render(Table(_HEADER, [*cells])).splitlines()
    if color:
        lines = [_colored(row.state, line) for row, line in zip(rows, lines, strict=True)]
    subjects: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # each once, in order
    for row in rows:
        if row.remedy:
            subjects[row.check, row.remedy][row.subject] = None
    remedies = "".join(
        f"- {printable(check)}, {printable(names([*found]))}:\n  {_indented(remedy)}\n"
        for (check, remedy), found in subjects.items()
    )
    counts = ", ".join(f"{sum(r.state is state for r in rows)} {state.value}" for state in State)
    to_do = f"\nWhat to do:\n{remedies}" if remedies else ""
    return "\n".join((header, *lines, "")) + f"{to_do}\n{counts}\n"


def as_json(rows: Sequence[Row]) -> str:
    """The rows as the object that docs/doctor.md describes."""
    found = [{**row._asdict(), "state": row.state.value} for row in rows]
    return json.dumps({"version": VERSION, "rows": found}, indent=2) + "\n"


def _colored(state: State, line: str) -> str:
    word = state.value
    return f"\x1b[{_COLORS[state]}m{word}\x1b[0m{line.removeprefix(word)}"


def _indented(text: str) -> str:
    """A remedy of several lines, such as commands to run, below the first."""
    return "\n  ".join(map(printable, text.splitlines()))
