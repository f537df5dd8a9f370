"""Tables of texts, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from terminal import printable

_GAP = "  "
_MAX_WIDTH = 60


def write_table(out: TextIO, lines: Sequence[tuple[str, ...]]) -> None:
    """Write `lines` in columns. A cell wider than `_MAX_WIDTH` pushes the rest of its line."""
    cells = [[printable(cell) for cell in line] for line in lines]
    widths = [min(_MAX_WIDTH, max(map(len, column))) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        out.write(_GAP.join(padded).rstrip() + "\n")
