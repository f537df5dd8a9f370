"""How far a long run is, on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Self, TypeVar

T = TypeVar("T")

_DELAY = 1.0  # seconds before the bar is shown
_INTERVAL = 0.1
_WIDTH = 30
_ERASE = "\r\x1b[K"


class Progress:
    """A bar on standard error, if that is a terminal and the run takes more than a second.

    Without a `total` there is no bar, only how many are done. `what` they are is in the plural.
    """

    def __init__(self, total: int | None, what: str = "files") -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._is_shown = False
        self._next = time.monotonic() + _DELAY
        self._is_on = (
            sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._write(_ERASE)

    def count(self, inputs: Iterable[T]) -> Iterator[T]:
        """`inputs`, each counted as done when the next one is asked for."""
        for item in inputs:
            yield item
            self._done += 1

    def show(self) -> None:
        """Show how many are done, if it is time to."""
        if not self._is_on or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        self._is_shown = True
        done = f"{self._done:,}"
        if self._total is not None:
            full = _WIDTH * self._done // self._total
            bar = "#" * full + "." * (_WIDTH - full)
            done = f"[{bar}] {done} of {self._total:,}"
        self._write(f"{_ERASE}gpuward: {done} {self._what}")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
