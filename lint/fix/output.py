"""The output of fixed texts: into the files, to standard output, or into a diff."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple, Self, TextIO

from lint.fix.changes import LineChange, changed_lines, split_lines
from lint.fix.fixer import FixedText, Fixer, WriteError
from rules.finding import Action
from sources.containment import is_inside
from sources.sources import UsageError
from terminal import printable, reason_of

# Replace the content of a file, all or nothing.
#
# At every moment, the file has its old content or its new one, also if the process is killed. A
# killed process may leave its temporary file, whose name begins with `.gpuward-`.


def write_file(text: FixedText) -> bool:
    """Write the text into its file if it has changed, and return True.

    The file keeps its mode, owner and extended attributes. Raises WriteError, and changes nothing,
    if that is impossible, if the file is read-only, if it has changed since it was read, and if it
    is a link that leads out of the tree.
    """
    if not text.is_changed:
        return True
    try:
        target = _file_to_write(text.source.name)
        status = os.stat(target)
        if not stat.S_ISREG(status.st_mode):
            raise WriteError("not a regular file")
        if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise WriteError("the file is read-only")
        _replace(target, text, status)
    except OSError as error:
        raise WriteError(reason_of(error)) from error
    return True


def _file_to_write(name: str) -> str:
    """The file to write: `name` itself, or what it links to.

    A link must not lead out of the working folder or, if it is elsewhere, out of its own folder.
    """
    if not os.path.islink(name):
        return name
    target, here = os.path.realpath(name), os.path.realpath(os.path.dirname(name))
    working = os.path.realpath(".")
    tree = working if is_inside(here, working) else here
    if not is_inside(target, tree):
        raise WriteError(f"a link that leads out of {tree}; name its target to fix it")
    return target


def _replace(target: str, text: FixedText, status: os.stat_result) -> None:
    folder = os.path.dirname(target) or "."
    descriptor, temporary = tempfile.mkstemp(prefix=".gpuward-", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.new.encode())
            file.flush()
            copy_attributes(target, file.fileno(), status)
            os.fsync(file.fileno())
        # The shorter the time between this look and the renaming, the better.
        _refuse_changed(target, text.source.text)
        os.replace(temporary, target)
    except BaseException:
        # After an interrupt, the file may have its new name already.
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    # The file has its new content, also where folders cannot be opened or synchronised.
    with suppress(OSError):
        _sync_folder(folder)


def copy_attributes(source: str | int, descriptor: int, status: os.stat_result) -> None:
    """Give a new file the owner, access lists and mode of `source`: a path or a descriptor."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    if hasattr(os, "listxattr"):  # Linux
        known = {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
        for name in os.listxattr(source):
            if (value := os.getxattr(source, name)) != known.get(name):
                os.setxattr(descriptor, name, value)
    if hasattr(os, "fchmod"):  # not on Windows
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


def _refuse_changed(target: str, known: str) -> None:
    with open(target, "rb") as file:
        if file.read() != known.encode():
            raise WriteError("the file has changed meanwhile; run the command again")


def _sync_folder(folder: str) -> None:
    """Make the renaming last through a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class StandardStreams:
    """Standard input, and standard output for its fixed text. All text goes through as bytes.

    Whatever happens, the text comes out: fixed, or as it was.
    """

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
        # After Ctrl-C, the user does not wait for the rest.
        if kind is None or issubclass(kind, Exception):
            self._pass_through()

    def _pass_through(self) -> None:
        """Write the input as it is, to its end, unless a text has been written."""
        if not self._is_delivered:
            sys.stdout.buffer.write(self._input)
            shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)


_CONTEXT_LINES = 3


def diff_writer(out: TextIO) -> Callable[[FixedText], bool]:
    """A function that writes the diff of each file, which `patch -p0` and `git apply -p0` accept.

    On a terminal, control characters are escaped.
    """
    is_terminal = out.isatty()

    def write(text: FixedText) -> bool:
        lines = unified_diff(text) if text.is_changed else ()
        out.writelines(f"{printable(line) if is_terminal else line}\n" for line in lines)
        return False

    return write


def unified_diff(text: FixedText) -> Iterator[str]:
    """The lines of the diff, without their line breaks."""
    old, new = split_lines(text.source.text), split_lines(text.new)
    yield f"--- {text.source.name}"
    yield f"+++ {text.source.name}"
    for hunk in _hunks(list(changed_lines(text.old_and_new_pieces))):
        before, after = hunk[0].start, hunk[-1].end
        start, stop = max(before - _CONTEXT_LINES, 0), min(after + _CONTEXT_LINES, len(old))
        new_start = hunk[0].new_start - (before - start)
        new_stop = hunk[-1].new_end + (stop - after)
        yield f"@@ -{_hunk_range(start, stop)} +{_hunk_range(new_start, new_stop)} @@"
        done = start
        for change in hunk:
            yield from _with_mark(" ", old[done : change.start])
            yield from _with_mark("-", old[change.start : change.end])
            yield from _with_mark("+", new[change.new_start : change.new_end])
            done = change.end
        yield from _with_mark(" ", old[done:stop])


def _with_mark(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _hunk_range(start: int, stop: int) -> str:
    """The first line and the number of lines; no lines stand behind the line before them."""
    first = start + 1 if stop > start else start
    return f"{first}" if stop == start + 1 else f"{first},{stop - start}"


def _hunks(found: list[LineChange]) -> Iterator[list[LineChange]]:
    """Changes that are so near that their context would overlap or touch."""
    hunk: list[LineChange] = []
    for change in found:
        if hunk and change.start - hunk[-1].end > 2 * _CONTEXT_LINES:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


class FixOutput(NamedTuple):
    """The fixer, the stream for the report, and the standard streams if their text is fixed."""

    fixer: Fixer
    report: TextIO
    streams: StandardStreams | None = None


def choose_fix_output(
    paths: Collection[str], out: TextIO, min_action: Action, *, diff: bool, staged: bool
) -> FixOutput:
    """Return how to fix `paths`, or what is staged.

    Findings with an action below `min_action` stay. What came from standard input goes to
    standard output, and the report then to standard error. Raises UsageError for standard input
    together with files.
    """
    if diff:
        return FixOutput(Fixer(diff_writer(out), min_action), out)
    if staged:
        return FixOutput(Fixer(_write_staged, min_action), out)
    if "-" not in paths:
        return FixOutput(Fixer(write_file, min_action), out)
    if len(paths) > 1:
        raise UsageError("standard input cannot be fixed together with files")
    streams = StandardStreams()
    return FixOutput(Fixer(streams.write, min_action), sys.stderr, streams)


def _write_staged(text: FixedText) -> bool:
    """Write a staged text with its fixes into its file, which must have just this text."""
    if not text.is_changed:
        return True
    name = text.source.name
    try:
        with open(name, "rb") as file:
            content = file.read()
        if content != text.source.text.encode():
            text = _with_carriage_returns(text)
            if content != text.source.text.encode() or not _is_as_staged(name):
                why = "the file has changes that are not staged: `git add` or stash them"
                raise WriteError(why)
    except OSError as error:
        raise WriteError(reason_of(error)) from error
    return write_file(text)


def _is_as_staged(name: str) -> bool:
    from sources.git.changes import is_as_staged  # noqa: PLC0415  # few fixes are of staged files

    try:
        return is_as_staged(name)
    except UsageError as error:
        raise WriteError(str(error)) from error


def _with_carriage_returns(text: FixedText) -> FixedText:
    """Return the text as git writes it to disk with `core.autocrlf`, or by `.gitattributes`."""
    source = text.source._replace(text=text.source.text.replace("\n", "\r\n"))
    pieces = [
        (old.replace("\n", "\r\n"), new.replace("\n", "\r\n"))
        for old, new in text.old_and_new_pieces
    ]
    return FixedText(source, pieces)
