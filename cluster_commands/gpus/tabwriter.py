"""Columns as Go's `text/tabwriter` aligns them, which kubectl and its plugins use."""

from __future__ import annotations

from collections.abc import Callable


def align(text: str, padding: int = 2, width_of: Callable[[str], int] = len) -> str:
    """`text` with its tabs replaced by spaces, as a tabwriter with minwidth 0 does.

    A cell ends with a tab. Cells of one column in lines that follow each other get the width of the
    widest, and `padding` more. What follows the last tab of a line is not aligned. `width_of` gives
    the width of a cell; Go counts its characters.
    """
    lines = [line.split("\t") for line in text.split("\n")]
    widths = [[0] * (len(cells) - 1) for cells in lines]
    for column in range(max(map(len, widths))):
        start = 0
        while start < len(lines):
            end = start
            while end < len(lines) and len(widths[end]) > column:
                end += 1
            block = range(start, end)
            width = max((width_of(lines[row][column]) for row in block), default=0) + padding
            for row in block:
                widths[row][column] = width
            start = max(end, start + 1)
    return "\n".join(
        "".join(
            cell + " " * (width - width_of(cell))
            for cell, width in zip(cells, line_widths, strict=False)
        )
        + cells[-1]
        for cells, line_widths in zip(lines, widths, strict=True)
    )
