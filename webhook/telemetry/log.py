"""The log: one JSON object a line, without secrets of tenants.

Lines carry names, never values: no environment, no object, and no message of an exception, because
such messages quote data. A line is made while a request waits, so it is encoded directly, without a
logging framework.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from webhook.admission.answer import Bug, bug_of
from webhook.admission.codec import CODEC
from webhook.telemetry.background_writer import BackgroundWriter

LEVELS = ("debug", "info", "warning", "error")
_RANK = {level: rank for rank, level in enumerate(LEVELS)}


class Stream(Protocol):
    """Where a log is written to."""

    def write(self, line: bytes, /) -> object:
        """Take one line."""

    def flush(self) -> None:
        """Have the lines written that were taken."""


class Log:
    """Writes lines of at least `level` to `stream`, which a background writer may be."""

    def __init__(self, stream: Stream, level: str = "info") -> None:
        self._stream = stream
        self._lowest = _RANK[level]
        self._second, self._second_text = 0, ""

    @property
    def dropped_lines(self) -> int:
        """How many lines were dropped because nobody read them."""
        return self._stream.dropped_lines if isinstance(self._stream, BackgroundWriter) else 0

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write one line: time, level, event and `fields`, which must be JSON."""
        self.write_prepared(level, event, fields)

    def write_prepared(
        self, level: str, event: str, fields: Mapping[str, Any], details: str = ""
    ) -> None:
        """The same; `details` are further fields, as the text of a JSON object that has some."""
        if _RANK[level] < self._lowest:
            return
        line = CODEC.dumps({"time": self._now(), "level": level, "event": event, **fields})
        if details:
            line = b"%b,%b" % (line[:-1], details[1:].encode())
        self._stream.write(line + b"\n")
        if level == "error":
            self._stream.flush()

    def _now(self) -> str:
        """The time, in UTC and ISO 8601, with milliseconds."""
        milliseconds = time.time_ns() // 1_000_000
        second = milliseconds // 1_000
        if second != self._second:
            moment = datetime.datetime.fromtimestamp(second, tz=datetime.UTC)
            self._second, self._second_text = second, f"{moment:%Y-%m-%dT%H:%M:%S}"
        return f"{self._second_text}.{milliseconds % 1_000:03}+00:00"

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
