"""End a run that takes too long by an error of ours, before the server kills it without a word."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_REPEAT = 1.0  # seconds; Python drops what is raised in a finalizer


class OutOfTimeError(BaseException):
    """The time is over. Nothing but the caller of `time_limit` handles this."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block when `seconds` are over, also while it waits for Git.

    It must be used in the main thread. Windows has no such alarm: there is no limit there.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raise(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError
