"""Read the texts at the paths that a user names."""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from typing import NamedTuple, TypeAlias

from lint.file_trees import DISK, FileTree

MAX_BYTES = 10 * 1024 * 1024
ENDINGS = (".yaml", ".yml", ".json")
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
STANDARD_INPUT = "<stdin>"
# An object must have an apiVersion, unless an escape or a tag hides the word.
_MAY_BE_KUBERNETES = re.compile(r"apiVersion|\\|!").search
_PLACEHOLDER = re.compile(r"^[^#\n]*\{\{", re.MULTILINE).search


class UsageError(Exception):
    """Wrong usage of the command line; the message says why."""


class Source(NamedTuple):
    """One text and the name by which reports call it.

    `is_named`: the user has named the file itself. `is_template`: it is in a chart's `templates`.
    `is_rendering`: no file has the text; `name` is the command that writes it.
    """

    name: str
    text: str
    is_named: bool = False
    is_template: bool = False
    is_rendering: bool = False


class SkippedSource(NamedTuple):
    """Something that is not read on purpose, and why."""

    name: str
    why: str


class UnreadableSource(NamedTuple):
    """Something that could not be read, and why; where in it, if that is known."""

    name: str
    why: str
    line: int = 0
    column: int = 0


class UnreadFile(NamedTuple):
    """A file to read: below `path`, which the user has named, or that file itself."""

    name: str
    path: str

    def read(self) -> Source | SkippedSource | UnreadableSource:
        """The text of the file."""
        return _read(self.name, named=self.name == self.path, root=self.path)


Input: TypeAlias = Source | SkippedSource | UnreadableSource | UnreadFile


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
            read = read_stdin or sys.stdin.buffer.read
            yield _decoded(stdin_name, read(MAX_BYTES + 1))
            continue
        for name in files_at(path):
            if isinstance(name, SkippedSource | UnreadableSource):
                yield name
            elif name not in seen and not any(is_excluded(name, pattern) for pattern in patterns):
                seen.add(name)
                if is_wanted is None or is_wanted(name):
                    yield UnreadFile(name, path)


def has_placeholder(text: str) -> bool:
    """Whether `text` has `{{` outside comments, as templates do."""
    return "{{" in text and _PLACEHOLDER(text) is not None


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


def _read(name: str, *, named: bool, root: str) -> Source | SkippedSource | UnreadableSource:
    try:
        if not named and _leads_outside(name, root):
            return UnreadableSource(
                name, "a link that leads out of the folder; name its target to lint it"
            )
        if not named and not stat.S_ISREG(os.stat(name).st_mode):
            return UnreadableSource(name, "not a regular file")
        content = DISK.read(name, MAX_BYTES + 1)
    except OSError as error:
        return UnreadableSource(name, (error.strerror or str(error)).lower())
    return source_of(name, content, DISK, is_named=named)


def source_of(
    name: str, content: bytes, tree: FileTree, *, is_named: bool = False
) -> Source | SkippedSource | UnreadableSource:
    """The file `name` of `tree` with its content, of which up to MAX_BYTES + 1 bytes are given."""
    source = _decoded(name, content)
    if not isinstance(source, Source):
        return source
    if not is_named and name.lower().endswith(".json") and not _MAY_BE_KUBERNETES(source.text):
        return SkippedSource(name, "")  # another tool's JSON, which may well not be JSON
    is_template = has_placeholder(source.text) and _is_chart_template(name, tree)
    return source._replace(is_named=is_named, is_template=is_template)


def _decoded(name: str, content: bytes) -> Source | UnreadableSource:
    if len(content) > MAX_BYTES:
        why = f"larger than {MAX_BYTES // 1024 // 1024} MiB"
        if name == STANDARD_INPUT:
            why += ": give it in parts, such as one namespace after the other"
        return UnreadableSource(name, why)
    try:
        return Source(name, content.decode("utf-8"))
    except UnicodeDecodeError as error:
        return UnreadableSource(name, f"not UTF-8 (byte {error.start})")


def _leads_outside(name: str, root: str) -> bool:
    if not os.path.islink(name):
        return False
    inside = os.path.realpath(root)
    return os.path.commonpath((os.path.realpath(name), inside)) != inside


def _is_chart_template(name: str, tree: FileTree) -> bool:
    folder = os.path.dirname(os.path.abspath(name))
    while folder != os.path.dirname(folder):
        above, own = os.path.split(folder)
        if own == "templates" and tree.is_file(os.path.join(above, "Chart.yaml")):
            return True
        folder = above
    return False
