"""Find what is at the paths that a user names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch

from sources.sources import (
    ENDINGS,
    KUSTOMIZATIONS,
    STANDARD_INPUT,
    Input,
    SkippedSource,
    StandardInput,
    UnreadableSource,
    UnreadFile,
    UsageError,
)


def inputs(
    paths: Iterable[str],
    exclude: Iterable[str] = (),
    stdin_name: str = STANDARD_INPUT,
    read_stdin: Callable[[int], bytes] | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> Iterator[Input]:
    """What is at `paths`: files, folders, globs, and `-` for standard input.

    A folder gives every YAML and JSON file in it, hidden folders excepted. Names that fit a
    pattern of `exclude` are left out. Standard input gets the name `stdin_name`; `read_stdin` reads
    so many bytes of it. `is_wanted` says which of the files are read; all without it. Raises
    UsageError for a path that does not exist.
    """
    patterns = tuple(exclude)
    seen: set[str] = set()
    for path in paths:
        if path == "-":
            yield StandardInput(stdin_name, read_stdin or sys.stdin.buffer.read)
            continue
        for name in files_at(path):
            if isinstance(name, SkippedSource | UnreadableSource):
                yield name
            elif name not in seen and not any(is_excluded(name, pattern) for pattern in patterns):
                seen.add(name)
                if is_wanted is None or is_wanted(name):
                    yield UnreadFile(name, path)


def is_excluded(name: str, pattern: str) -> bool:
    """Whether `pattern` fits the file, one of the folders that it is in, or the name of one."""
    while name and name != os.path.dirname(name):
        if fnmatch(name, pattern) or fnmatch(os.path.basename(name), pattern):
            return True
        name = os.path.dirname(name)
    return False


def files_at(path: str) -> Iterator[str | SkippedSource | UnreadableSource]:
    """The names of the files at `path`: a file, or all in a folder or that fit a glob."""
    if os.path.isdir(path):
        yield from _files_in_folder(path)
    elif os.path.lexists(path):
        yield path
    else:
        import glob  # noqa: PLC0415  # most users name files and folders

        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise UsageError(f"{path} does not exist")
        for name in found:
            yield from files_at(name)


def _files_in_folder(folder: str) -> Iterator[str | SkippedSource | UnreadableSource]:
    closed: list[OSError] = []
    for here, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if os.path.islink(os.path.join(here, name)):
                yield SkippedSource(
                    os.path.join(here, name), "a link to a folder: name it to lint it"
                )
        for name in sorted(files):
            if name.lower().endswith(ENDINGS) or name in KUSTOMIZATIONS:
                yield os.path.normpath(os.path.join(here, name))
    for error in closed:
        yield UnreadableSource(str(error.filename), (error.strerror or str(error)).lower())
