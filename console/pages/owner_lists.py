"""Findings as lists to send: what each owner has to change, as text, Markdown or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from console.pages.findings import Filter, Row, chosen_rows
from reports.results import Results
from terminal import printable

MAX_FINDINGS = 2_000
"""More are not in a list, and it says so."""
_MAX_CHARACTERS = 600  # of one value
_COLUMNS = ("namespace", "owner", "level", "rule", "container", "field", "message", "help")
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


class OwnerList(NamedTuple):
    """The findings of one owner."""

    namespace: str
    owner: str
    rows: tuple[Row, ...]


def owner_lists(results: Results, wanted: Filter) -> tuple[tuple[OwnerList, ...], int]:
    """The findings that fit the filter by namespace and owner, and how many are left out."""
    rows = chosen_rows(results, wanted)
    rows.sort(key=lambda row: (row.namespace, row.owner))
    shown = rows[:MAX_FINDINGS]
    groups = groupby(shown, key=lambda row: (row.namespace, row.owner))
    lists = tuple(OwnerList(namespace, owner, tuple(found)) for (namespace, owner), found in groups)
    return lists, len(rows) - len(shown)


def as_text(lists: Sequence[OwnerList], left_out: int) -> str:
    """Plain text, for a mail or a chat."""
    return "\n".join(_text_lines(lists, left_out)) + "\n"


def as_markdown(lists: Sequence[OwnerList], left_out: int) -> str:
    """Markdown, for a ticket: names and messages are code, so that none is markup."""
    return "\n".join(_markdown_lines(lists, left_out)) + "\n"


def as_csv(lists: Sequence[OwnerList], left_out: int) -> str:
    """One line a finding, for a spreadsheet. No cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for one in lists:
        for row in one.rows:
            cells = (row.level, row.rule, row.container, row.pointer, row.message, row.help)
            writer.writerow(map(_cell, (one.namespace, one.owner, *cells)))
    if left_out:
        writer.writerow([_left_out_text(left_out)])
    return out.getvalue()


FORMATS: Mapping[str, tuple[str, Callable[[Sequence[OwnerList], int], str]]] = {
    "text": ("text/plain", as_text),
    "markdown": ("text/markdown", as_markdown),
    "csv": ("text/csv", as_csv),
}
"""The type of each format, and what writes it."""


def _text_lines(lists: Sequence[OwnerList], left_out: int) -> Iterator[str]:
    for one in lists:
        yield f"{_value(one.owner)} in {_value(one.namespace)}:"
        for row in one.rows:
            yield f"  - {row.level} {row.rule}: {_value(row.message)}"
            if row.pointer:
                yield f"    {_value(row.pointer)}"
            if row.help:
                yield f"    -> {_value(row.help)}"
        yield ""
    yield _left_out_text(left_out) if left_out else _end(lists)


def _markdown_lines(lists: Sequence[OwnerList], left_out: int) -> Iterator[str]:
    for one in lists:
        yield f"### {_code(one.owner)} in {_code(one.namespace)}"
        yield ""
        for row in one.rows:
            field = _code(row.pointer) if row.pointer else "the object"
            yield f"- [ ] **{row.level}** `{row.rule}` at {field}: {_code(row.message)}"
            if row.help:
                yield f"  - {_code(row.help)}"
        yield ""
    yield _left_out_text(left_out) if left_out else _end(lists)


def _end(lists: Sequence[OwnerList]) -> str:
    return "That is all." if lists else "No finding fits the filter."


def _left_out_text(number: int) -> str:
    return f"{number:,} more findings are not in this list: choose a namespace or a rule."


def _value(text: str) -> str:
    """A value on one line, in which every character is visible."""
    return printable(text)[:_MAX_CHARACTERS]


def _code(text: str) -> str:
    """A value as a code span, which it cannot end: it has fewer backquotes in a row."""
    value = _value(text)
    fence = "`" * (_longest_run(value) + 1)
    return f"{fence} {value} {fence}" if "`" in value else f"`{value}`"


def _longest_run(value: str) -> int:
    longest = run = 0
    for character in value:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest


def _cell(text: str) -> str:
    """A value that no spreadsheet takes for a formula."""
    value = _value(text)
    return f"'{value}" if value.startswith(_FORMULA_SIGNS) else value
