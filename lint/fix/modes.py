"""Where fixed texts go: into the files, to standard output, or into a diff."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import NamedTuple, TextIO

from lint.fix.diff import diff_writer
from lint.fix.fixer import FixedText, Fixer, WriteError
from lint.fix.output import write_file
from lint.fix.standard_streams import StandardStreams
from sources.sources import UsageError


class Mode(NamedTuple):
    """The fixer, the stream for the report, and the standard streams if their text is fixed."""

    fixer: Fixer
    report: TextIO
    streams: StandardStreams | None = None


def start(paths: Collection[str], out: TextIO, *, diff: bool, staged: bool) -> Mode:
    """How to fix `paths`, or what is staged.

    What came from standard input goes to standard output, and the report then to standard error.
    Raises UsageError for standard input together with files.
    """
    if diff:
        return Mode(Fixer(diff_writer(out)), out)
    if staged:
        return Mode(Fixer(_write_staged), out)
    if "-" not in paths:
        return Mode(Fixer(write_file), out)
    if len(paths) > 1:
        raise UsageError("standard input cannot be fixed together with files")
    streams = StandardStreams()
    return Mode(Fixer(streams.write), sys.stderr, streams)


def _write_staged(text: FixedText) -> bool:
    """Write a staged text with its fixes into its file, which must have just this text."""
    if text.is_changed:
        try:
            with open(text.source.name, "rb") as file:
                has_more = file.read() != text.source.text.encode()
        except OSError as error:
            raise WriteError((error.strerror or str(error)).lower()) from error
        if has_more:
            raise WriteError("the file has changes that are not staged: `git add` or stash them")
    return write_file(text)
