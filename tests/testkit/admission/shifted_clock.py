"""Runs `gpuward` with a clock that a file shifts: its number of seconds is added to the time.

    python shifted_clock.py FILE serve …

Whoever writes FILE makes the wall clock jump, forwards or back, under a process that runs. The
monotonic clock goes on as if nothing had happened, as it does when a real clock is set.
"""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path

_SHIFT = Path(sys.argv[1])
_time = time.time


def shift() -> float:
    """How many seconds the clock is wrong."""
    return float(_SHIFT.read_text(encoding="utf-8"))


class Shifted(datetime.datetime):
    """The class `datetime`, wrong about now."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Shifted:
        """The shifted time."""
        return cls.fromtimestamp(_time() + shift(), tz)


if __name__ == "__main__":
    # Before anything of ours is imported, so that nothing holds the true clock.
    datetime.datetime = Shifted  # type: ignore[misc]
    time.time = lambda: _time() + shift()
    sys.argv = ["gpuward", *sys.argv[2:]]
    from gpuward.__main__ import main

    raise SystemExit(main())
