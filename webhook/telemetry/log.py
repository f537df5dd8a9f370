"""The log: one JSON object a line, without secrets of tenants.

Lines carry names, never values: no environment, no object, and no message of an exception, because
such messages quote data. A line is made while a request waits, so it is encoded directly, without a
logging framework.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from webhook.admission.answer import BugReport, bug_of
from webhook.admission.review import CODEC
from webhook.settings import LOG_LEVELS

# How long a line may wait for others, with which it is written at once.
BATCH_SECONDS = 0.2
# Lines that arrive while so many bytes wait to be written are dropped.
MAX_WAITING_BYTES = 4 << 20
_MAX_BATCH_BYTES = 1 << 16
_RETRY_SECONDS = 0.05


class BackgroundWriter:
    """Writes lines to the file `descriptor` in a thread, so that a slow reader delays no answer.

    `write` is for use by one thread.
    """

    def __init__(self, descriptor: int, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self._descriptor = descriptor
        self._max_waiting_bytes = max_waiting_bytes
        self._lines: deque[bytes] = deque()
        # Each is changed by one thread alone.
        self._accepted_bytes = self._written_bytes = 0
        self._refused_lines = self._lost_lines = 0
        self._has_lines, self._is_urgent = threading.Event(), threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def dropped_lines(self) -> int:
        """Return how many lines were dropped: too many waited, or they could not be written."""
        return self._refused_lines + self._lost_lines

    def write(self, line: bytes) -> None:
        """Take one line, to be written within about BATCH_SECONDS."""
        if self._accepted_bytes - self._written_bytes > self._max_waiting_bytes:
            self._refused_lines += 1
            return
        self._accepted_bytes += len(line)
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._has_lines.set()

    def flush(self) -> None:
        """Have the lines written now; does not wait for it."""
        self._is_urgent.set()

    def close(self, seconds: float) -> None:
        """Write all lines and stop; lines that are not read within `seconds` are lost."""
        self._is_closing = True
        self._has_lines.set()
        self._is_urgent.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not (self._is_closing and not self._lines):
            self._has_lines.wait()
            self._is_urgent.wait(BATCH_SECONDS)
            self._is_urgent.clear()
            self._has_lines.clear()
            while self._lines:
                self._write_batch()

    def _write_batch(self) -> None:
        batch, lines = bytearray(), 0
        while self._lines and len(batch) < _MAX_BATCH_BYTES:
            batch += self._lines.popleft()
            lines += 1
        try:
            self._write_all(batch)
        except OSError:  # no program reads the log any more, or its disk is full
            self._lost_lines += lines
        self._written_bytes += len(batch)

    def _write_all(self, batch: bytearray) -> None:
        rest = memoryview(batch)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # the program that made the descriptor shares it
                threading.Event().wait(_RETRY_SECONDS)


_RANK_BY_LEVEL = {level: rank for rank, level in enumerate(LOG_LEVELS)}


class Stream(Protocol):
    """The output of a log."""

    def write(self, line: bytes, /) -> object:
        """Take one line."""

    def flush(self) -> None:
        """Have the lines written that were taken."""


class Log:
    """Writes lines of at least `level` to `stream`, which a background writer may be."""

    def __init__(self, stream: Stream, level: str = "info") -> None:
        self._stream = stream
        self._lowest = _RANK_BY_LEVEL[level]
        self._second, self._second_text = 0, ""

    @property
    def dropped_lines(self) -> int:
        """Return how many lines were dropped because they were not read."""
        return self._stream.dropped_lines if isinstance(self._stream, BackgroundWriter) else 0

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write one line: time, level, event and `fields`, which must be JSON."""
        self.write_prepared(level, event, fields)

    def write_prepared(
        self, level: str, event: str, fields: Mapping[str, Any], details: str = ""
    ) -> None:
        """Write one line, as `write` does.

        `details` are further fields, as the text of a JSON object that has some.
        """
        if _RANK_BY_LEVEL[level] < self._lowest:
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

    def write_internal_error(self, event: str, error: BaseException, **fields: Any) -> None:
        """Write one line about a bug that raised `error`."""
        self.write_bug(event, bug_of(error), **fields)

    def write_bug(self, event: str, bug: BugReport, **fields: Any) -> None:
        """Write one line about a bug."""
        self.write("error", event, error=bug.error_type, traceback=bug.traceback, **fields)

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


# Users of Kubernetes itself and service accounts, which are no persons.
SYSTEM_USER_PREFIX = "system:"
HASH_CHARACTERS = 16


def pseudonym_of_user(name: str) -> str:
    """`name` itself if it is no person's; else `sha256:` and the beginning of its hash."""
    if not name or name.startswith(SYSTEM_USER_PREFIX):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"sha256:{digest[:HASH_CHARACTERS]}"
