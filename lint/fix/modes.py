"""Where fixed texts go: into the files, to standard output, or into a diff."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import NamedTuple, TextIO

from lint.fix.atomic_write import write_file
from lint.fix.diff import diff_writer
from lint.fix.fixer import Fixer
from lint.fix.standard_streams import StandardStreams
from lint.sources import UsageError


class Mode(NamedTuple):
    """The fixer, the stream for the report, and the standard streams if their text is fixed."""

    fixer: Fixer
    report: TextIO
    streams: StandardStreams | None = None


def start(paths: Collection[str], out: TextIO, *, diff: bool) -> Mode:
    """How to fix `paths`.

    What came from standard input goes to standard output, and the report then to standard error.
    Raises UsageError for standard input together with files.
    """
    if diff:
        return Mode(Fixer(diff_writer(out)), out)
    if "-" not in paths:
        return Mode(Fixer(write_file), out)
    if len(paths) > 1:
        raise UsageError("standard input cannot be fixed together with files")
    streams = StandardStreams()
    return Mode(Fixer(streams.write), sys.stderr, streams)
