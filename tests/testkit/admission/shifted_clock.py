"""Runs `gpuward` with a shifted clock: a file has the number of seconds to add to the time.

    python shifted_clock.py FILE serve …

A test that writes FILE makes the wall clock of the running process jump, forwards or backwards.
The monotonic clock does not change, as when a real clock is set.
"""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path

_SHIFT = Path(sys.argv[1])
_time = time.time


def shift() -> float:
    """Return how many seconds the clock is ahead."""
    return float(_SHIFT.read_text(encoding="utf-8"))


class ShiftedDatetime(datetime.datetime):
    """The class `datetime` with a shifted `now`."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> ShiftedDatetime:
        """The shifted time."""
        return cls.fromtimestamp(_time() + shift(), tz)


if __name__ == "__main__":
    # Before gpuward is imported, so that no module imports the real clock.
    datetime.datetime = ShiftedDatetime  # type: ignore[misc]
    time.time = lambda: _time() + shift()
    sys.argv = ["gpuward", *sys.argv[2:]]
    from gpuward.__main__ import main

    raise SystemExit(main())
