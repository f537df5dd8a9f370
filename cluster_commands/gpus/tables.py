"""Print tables as kubectl does, with bars if a terminal shows them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from cluster.gpus.tables import Cell, Table, allocated_text
from cluster.gpus.usage import ResourceUsage
from cluster_commands.gpus.tabwriter import align
from terminal import printable

_PADDING = 3  # between columns, as in kubectl
# The longest valid name, that of a resource: domain, slash, name. One cell widens all rows.
_MOST_CHARACTERS = 253 + 1 + 63
_WIDTH = 10
ALLOCATED, STRANDED, UNAVAILABLE, FREE = "█", "▒", "x", "░"
LEGEND = f"{ALLOCATED} allocated  {STRANDED} stranded  {FREE} free  {UNAVAILABLE} unavailable\n"


def render(table: Table, *, bars: bool = False) -> str:
    """The lines of `table`; with `bars` each amount of which something is allocated has one."""
    lines = [table.header, *(tuple(_cell(cell, bars=bars) for cell in row) for row in table.rows)]
    text = "\n".join("\t".join(map(_bounded, line)) for line in lines)
    return f"{align(text, _PADDING, display_width)}\n"


def _bounded(text: str) -> str:
    """`text` as a terminal may show it, cut: no API server bounds the name of a pod's owner."""
    shown = printable(text[: _MOST_CHARACTERS + 1])
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[: _MOST_CHARACTERS - 3]}..."


def display_width(text: str) -> int:
    """The columns that a terminal needs for a text without control characters."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:  # drawn upon the one before
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def bar(used: ResourceUsage) -> str:
    """A bar of ten characters; empty if the total is unknown or 0.

    Whatever is there gets at least one character, so that a little is not taken for nothing.
    """
    if not used.total:
        return ""
    parts = (
        (ALLOCATED, min(used.allocated, used.total)),
        (STRANDED, used.stranded),
        (UNAVAILABLE, used.unavailable),
        (FREE, used.free),
    )
    shares = [_WIDTH * part / used.total for _, part in parts]
    lengths = [max(int(share), 1) if share else 0 for share in shares]
    while sum(lengths) < _WIDTH:
        rests = [share - length for share, length in zip(shares, lengths, strict=True)]
        lengths[rests.index(max(rests))] += 1
    while sum(lengths) > _WIDTH:
        lengths[lengths.index(max(lengths))] -= 1
    return "".join(mark * length for (mark, _), length in zip(parts, lengths, strict=True))


def _cell(cell: Cell, *, bars: bool) -> str:
    if isinstance(cell, str):
        return cell
    amount = allocated_text(cell)
    return f"{bar(cell):{_WIDTH}} {amount}" if bars else amount


def join(tables: Iterable[Table], *, bars: bool) -> str:
    """The tables that have rows, with an empty line between them."""
    return "\n".join(render(table, bars=bars) for table in tables if table.rows)
