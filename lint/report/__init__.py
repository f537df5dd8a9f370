"""Reports: one module per format, each with `write(out, results, style)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TextIO

from lint.results import Results

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)


class Style(NamedTuple):
    """Options of the reports for people."""

    color: bool = False
    notes: bool = False


Writer = Callable[[TextIO, Results, Style], None]


def printable(text: str) -> str:
    """`text` with control characters escaped, so that it cannot control a terminal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
