"""The log: one JSON object a line, without secrets of tenants.

Lines carry names, never values: no environment, no object, and no message of an exception, because
such messages quote data. A line is written while a request waits, so it is encoded and written
directly, without a logging framework.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from typing import Any, BinaryIO

from webhook.admission.answer import Bug, bug_of
from webhook.admission.codec import CODEC

LEVELS = ("debug", "info", "warning", "error")
_RANK = {level: rank for rank, level in enumerate(LEVELS)}


class Log:
    """Writes lines of at least `level` to `stream`; errors of a closed stream are ignored."""

    def __init__(self, stream: BinaryIO, level: str = "info") -> None:
        self._stream = stream
        self._lowest = _RANK[level]

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write one line: time, level, event and `fields`, which must be JSON."""
        if _RANK[level] < self._lowest:
            return
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
        line = CODEC.dumps({"time": now, "level": level, "event": event, **fields})
        try:
            self._stream.write(line + b"\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads the log any more, and requests still wait
            return

    def internal_error(self, event: str, error: BaseException, **fields: Any) -> None:
        """Write one line about a bug that raised `error`."""
        self.bug(event, bug_of(error), **fields)

    def bug(self, event: str, bug: Bug, **fields: Any) -> None:
        """Write one line about a bug."""
        self.write("error", event, error=bug.error, traceback=bug.traceback, **fields)

    def capture_stdlib_logging(self) -> None:
        """Also write the warnings that libraries log by `logging`, in the same form."""
        root = logging.getLogger()
        root.handlers[:] = [LibraryHandler(self)]
        root.setLevel(logging.WARNING)


class LibraryHandler(logging.Handler):
    """Writes the log records of libraries to `log`.

    Only the template of the message is written: its arguments may come from a request.
    """

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        template = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        self._log.write(level, "library", logger=record.name, message=template, error=error)


class _CountingHandler(logging.Handler):
    def __init__(self, count: Callable[[], None]) -> None:
        super().__init__()
        self._count = count

    def emit(self, _record: logging.LogRecord) -> None:
        self._count()


def counting_logger(count: Callable[[], None]) -> logging.Logger:
    """A logger that writes nothing and calls `count` instead.

    It is for messages that any stranger can cause in any number.
    """
    logger = logging.Logger("gpuward.http")  # noqa: LOG001  # it has no parents
    logger.addHandler(_CountingHandler(count))
    return logger
