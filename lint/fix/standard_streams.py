"""Fix standard input as a filter: whatever happens, its text comes out, fixed or unchanged."""

from __future__ import annotations

import shutil
import sys
from typing import Self

from lint.fix.fixer import FixedText


class StandardStreams:
    """Standard input, and standard output for its fixed text. All text goes through as bytes."""

    def __init__(self) -> None:
        self._input = b""
        self._is_delivered = False

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes of standard input."""
        self._input = sys.stdin.buffer.read(size)
        return self._input

    def write(self, text: FixedText) -> bool:
        """Write the fixed text, and return True."""
        self._is_delivered = True
        sys.stdout.buffer.write(text.new.encode() if text.is_changed else self._input)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C, nobody waits for the rest.
        if kind is None or issubclass(kind, Exception):
            self._pass_through()

    def _pass_through(self) -> None:
        """Write the input as it is, to its end, unless a text has been written."""
        if not self._is_delivered:
            sys.stdout.buffer.write(self._input)
            shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
