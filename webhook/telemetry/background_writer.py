"""Writes the log in a thread, so that a reader who is slow does not delay answers to requests."""

from __future__ import annotations

import os
import threading
from collections import deque

# How long a line may wait for others, with which it is written at once.
BATCH_SECONDS = 0.2
# Lines that arrive while so many bytes wait to be written are dropped.
MAX_WAITING_BYTES = 4 << 20
_MAX_BATCH_BYTES = 1 << 16
_RETRY_SECONDS = 0.05


class BackgroundWriter:
    """Writes lines to the file `descriptor`. `write` is for use by one thread."""

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
        """How many lines were dropped: too many waited, or they could not be written."""
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
        """Write all lines and stop; lines that nobody reads within `seconds` are lost."""
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
        except OSError:  # nobody reads the log any more, or its disk is full
            self._lost_lines += lines
        self._written_bytes += len(batch)

    def _write_all(self, batch: bytearray) -> None:
        rest = memoryview(batch)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # whoever made the descriptor shares it with others
                threading.Event().wait(_RETRY_SECONDS)
