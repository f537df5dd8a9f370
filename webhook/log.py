"""The log: one JSON object a line, without a word that a tenant's manifest keeps in private.

Lines carry names, never values: no environment, no object, and no exception's message,
because messages quote what they stumbled on. A line is written on the path of a call, so
it is encoded and written straight away, with no logging framework in between.
"""

from __future__ import annotations

import datetime
import logging
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO

from webhook.codec import CODEC

LEVELS = ("debug", "info", "warning", "error")
MAX_TEXT = 253  # the longest name that Kubernetes allows
_RANK = {level: rank for rank, level in enumerate(LEVELS)}


class Log:
    """Writes lines of at least `level` to `stream`; a stream that is gone is passed over."""

    def __init__(self, stream: BinaryIO, level: str = "info") -> None:
        self._stream = stream
        self._lowest = _RANK[level]

    def write(self, level: str, event: str, **fields: Any) -> None:
        """One line: when, how bad, what, and `fields`, which must be JSON."""
        if _RANK[level] < self._lowest:
            return
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
        line = CODEC.dumps({"time": now, "level": level, "event": event, **fields})
        try:
            self._stream.write(line + b"\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it; that is no reason to stop
            return

    def fault(self, event: str, error: BaseException, **fields: Any) -> None:
        """One line about a bug of ours: where it happened and of what type, not its message."""
        places = _places(error.__traceback__)
        self.write("error", event, error=type(error).__name__, traceback=places, **fields)

    def take_over(self) -> None:
        """Have the warnings of the libraries below us written here too, in the same form."""
        root = logging.getLogger()
        root.handlers[:] = [Bridge(self)]
        root.setLevel(logging.WARNING)


class Bridge(logging.Handler):
    """Turns a library's log records into lines of ours.

    Only the wording is kept: what was filled in may be out of a request.
    """

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        wording = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        self._log.write(level, "library", logger=record.name, message=wording, error=error)


class _Told(logging.Handler):
    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, _record: logging.LogRecord) -> None:
        self._tell()


def counted(tell: Callable[[], None]) -> logging.Logger:
    """A logger that writes nothing, for what strangers can cause; `tell` is called instead."""
    logger = logging.Logger("gpuward.http")  # noqa: LOG001  # it has no parents
    logger.addHandler(_Told(tell))
    return logger


def brief(text: str) -> str:
    """`text`, a name out of a request, no longer than a name may be."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _places(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
