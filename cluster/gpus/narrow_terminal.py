"""Make the rows of a table fit into a narrow terminal: columns are left out, and cells folded."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from terminal import display_width

Row = Sequence[str]

_NARROWEST = 10  # characters of a column that is folded
_SAYS_NOTHING = {"0", "-", "<none>", ""}
# A column that says so all the same.
_NEVER_SILENT = ("FREE",)
# Left out if need be, but not as the first column, which says what a row is about.
_OPTIONAL = ("MODEL", "PLATFORM")


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines also within names, after the characters that separate their parts."""

    wordsep_re = re.compile(r"(\s+|(?<=[/,-])(?=\S))")


def fitted(rows: Sequence[Row], width: float, padding: int) -> list[Row]:
    """Return the lines of `rows`, the first of which is the header, with columns `padding` apart.

    If they do not fit into `width`, columns in which nothing is said are left out, then those that
    can be done without; the cells of what is still too wide are folded into several lines.
    """
    columns = [*zip(*rows, strict=True)]
    silent = [
        column
        for column in columns[1:]
        if len(rows) > 1 and column[0] not in _NEVER_SILENT and _SAYS_NOTHING.issuperset(column[1:])
    ]
    optional = [c for name in _OPTIONAL for c in columns[1:] if c[0] == name]
    for column in [*reversed(silent), *optional]:
        if _width(columns, padding) > width and column in columns:
            columns.remove(column)
    return [*_folded(columns, width - padding * (len(columns) - 1))]


def _width(columns: Sequence[Row], padding: int) -> int:
    return sum(map(_width_of_column, columns)) + padding * (len(columns) - 1)


def _width_of_column(column: Row) -> int:
    return max(map(display_width, column))


def _folded(columns: Sequence[Row], available: float) -> Iterator[Row]:
    widths = [*map(_width_of_column, columns)]
    while sum(widths) > available and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    for row in zip(*columns, strict=True):
        cells = [
            _Wrapper(most).wrap(cell) if display_width(cell) > most else [cell]
            for cell, most in zip(row, widths, strict=True)
        ]
        yield from zip_longest(*cells, fillvalue="")
