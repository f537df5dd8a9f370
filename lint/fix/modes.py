"""Where fixed texts go: into the files, to standard output, or into a diff."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TextIO

from lint.fix.atomic_write import write_file
from lint.fix.diff import diff_writer
from lint.fix.fixer import FixedText, Fixer
from lint.sources import UsageError


def start(paths: Collection[str], out: TextIO, *, diff: bool) -> tuple[Fixer, TextIO]:
    """The fixer for `paths`, and the stream for the report.

    What came from standard input goes to standard output, and the report then to standard error.
    Raises UsageError for standard input together with files.
    """
    if diff:
        return Fixer(diff_writer(out)), out
    if "-" not in paths:
        return Fixer(write_file), out
    if len(paths) > 1:
        raise UsageError("standard input cannot be fixed together with files")
    return Fixer(_print_text), sys.stderr


def _print_text(text: FixedText) -> bool:
    # As bytes: line breaks stay as they are.
    sys.stdout.buffer.write(text.new.encode())
    return True
