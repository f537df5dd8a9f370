"""Pictures: the cards of a node, and findings by day, in pixels, which a template draws as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cluster.accounting.shares import Amount
from cluster.audit.trend import Day
from cluster.gpus.tables import text

TAKEN, STARTING, STRANDED, FREE, UNAVAILABLE = (
    "taken",
    "starting",
    "stranded",
    "free",
    "unavailable",
)
_CARD = 22  # pixels
_SHARED_CARD = 96
_GAP = 3
_MAX_CARDS = 32  # beyond it, cards are not drawn one by one
_WIDEST = 420
_LEAST = 3
_LETTER = 6.0  # of the small type in a picture, about
_LEAST_LETTERS = 3


class Part(NamedTuple):
    """An amount in one state. `label` is who has it, in short; `title` says it in full."""

    state: str
    amount: Amount
    label: str = ""
    title: str = ""


class Shape(NamedTuple):
    """A rectangle from `x`, with separators between its cards at `lines`."""

    state: str
    x: float
    width: float
    label: str
    title: str
    lines: tuple[float, ...] = ()


class Picture(NamedTuple):
    """Shapes, and what they say in words."""

    width: float
    shapes: tuple[Shape, ...]
    words: str


def cards(parts: Sequence[Part], total: Amount) -> Picture:
    """Whole cards beside each other, those of one owner joined; many of them to scale."""
    if total > _MAX_CARDS:
        return _to_scale(parts, total)
    shapes: list[Shape] = []
    x = 0.0
    for part in parts:
        count = int(part.amount)
        is_joined = part.state in {TAKEN, STARTING}
        for size in [count] if is_joined else [1] * count:
            width = size * _CARD - _GAP
            lines = tuple(x + n * _CARD - _GAP / 2 for n in range(1, size))
            shapes.append(
                Shape(part.state, x, width, fitting(part.label, width), part.title, lines)
            )
            x += size * _CARD
    return Picture(max(x - _GAP, 0), tuple(shapes), _words(parts))


def shared_cards(divided: Sequence[tuple[Sequence[Part], Amount]]) -> Picture:
    """Cards beside each other, each divided by what its parts are of its total."""
    shapes: list[Shape] = []
    width = min(_SHARED_CARD, _WIDEST / max(len(divided), 1) * 2)
    for number, (parts, total) in enumerate(divided):
        start = number * (width + _GAP * 2)
        shapes += _divided(parts, total, start, width)
    whole = len(divided) * (width + _GAP * 2) - _GAP * 2
    words = "; ".join(f"card {n}: {_words(parts)}" for n, (parts, _) in enumerate(divided))
    return Picture(max(whole, 0), tuple(shapes), words)


def bar(parts: Sequence[Part], total: Amount, width: float = 160) -> Picture:
    """One bar, divided by what its parts are of `total`."""
    return Picture(width, tuple(_divided(parts, total, 0, width)), _words(parts))


def _to_scale(parts: Sequence[Part], total: Amount) -> Picture:
    width = min(_WIDEST, float(total) * _CARD / 2)
    return Picture(width, tuple(_divided(parts, total, 0, width)), _words(parts))


def _divided(parts: Iterable[Part], total: Amount, start: float, width: float) -> Iterable[Shape]:
    """The parts of one rectangle; whatever is there has at least a few pixels."""
    there = [part for part in parts if part.amount]
    whole = max(float(total), sum(float(part.amount) for part in there)) or 1.0
    widths = [max(width * float(part.amount) / whole, _LEAST) for part in there]
    factor = width / max(sum(widths), width)
    x = start
    for part, own in zip(there, widths, strict=True):
        wide = own * factor
        yield Shape(part.state, round(x, 1), round(wide, 1), fitting(part.label, wide), part.title)
        x += wide


def fitting(label: str, width: float) -> str:
    """As much of `label` as there is room for; nothing if that says nothing."""
    letters = int((width - 6) / _LETTER)
    if letters < _LEAST_LETTERS:
        return ""
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def _words(parts: Iterable[Part]) -> str:
    said = (
        f"{text(part.amount)} {part.state}" + (f" by {part.label}" if part.label else "")
        for part in parts
        if part.amount
    )
    return ", ".join(said) or "none"


_CHART_WIDTH, _CHART_HEIGHT = 640, 96
_EDGE = 6  # so that a line at the edge is whole


class Line(NamedTuple):
    """A line of a chart: the `level` of findings, its points as SVG writes them, and its end."""

    level: str
    points: str
    end: tuple[float, float]


class Chart(NamedTuple):
    """Lines from the first day to the last; `most` is what the upper edge stands for."""

    width: int
    height: int
    lines: tuple[Line, ...]
    most: int
    words: str


def chart(days: Sequence[Day]) -> Chart:
    """Return how many errors and warnings there were on `days`, of which there is at least one."""
    first, last = days[0], days[-1]
    span = max((last.date - first.date).days, 1)
    most = max(max(day.errors, day.warnings) for day in days)

    def point(day: Day, number: int) -> tuple[float, float]:
        share = number / most if most else 0.0
        left = (day.date - first.date).days / span
        return (
            round(_EDGE + left * (_CHART_WIDTH - 2 * _EDGE), 1),
            round(_CHART_HEIGHT - _EDGE - share * (_CHART_HEIGHT - 2 * _EDGE), 1),
        )

    lines = []
    words = []
    for level, numbers in (
        ("error", [day.errors for day in days]),
        ("warning", [day.warnings for day in days]),
    ):
        points = [point(day, number) for day, number in zip(days, numbers, strict=True)]
        written = " ".join(f"{x},{y}" for x, y in points)
        lines.append(Line(level, written, points[-1]))
        words.append(f"{level}s: {numbers[0]:,} on {first.date}, {numbers[-1]:,} on {last.date}")
    return Chart(_CHART_WIDTH, _CHART_HEIGHT, tuple(lines), most, "; ".join(words))
