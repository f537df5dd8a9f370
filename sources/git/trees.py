"""The files of a commit, or of the next one: names, contents and copies; and what Git ignores."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import NamedTuple, Self

from sources.containment import relative_path_inside
from sources.git.command import BOUNDS, GitError, git_records, opened_pipe, start_git
from sources.sources import MAX_BYTES
from terminal import reason_of


class BlobError(OSError):
    """A content that cannot be had; the message says why."""


class BlobReader:
    """Reads contents one after the other, by one process of git.

    It reads what is stored: no filter and no conversion of the repository is run. The process
    starts with the first content, in the folder that was the working folder when this object was
    made, and ends with the block.
    """

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def read(self, name: str, limit: int) -> bytes:
        """The content of the object called `name`, up to `limit` bytes. Raises BlobError."""
        if self._process is None:
            errors = subprocess.DEVNULL  # gpuward does not read them while git runs
            self._process = start_git("-C", self._folder, "cat-file", "--batch", errors=errors)
        process = self._process
        requests, output = opened_pipe(process.stdin), opened_pipe(process.stdout)
        try:
            requests.write(name.encode() + b"\n")
            requests.flush()
        except BrokenPipeError:
            self._stop()
            raise BlobError("git has ended unexpectedly") from None
        header = output.readline().split()
        if len(header) != 3 or header[1] != b"blob":  # noqa: PLR2004  # name, type, size
            self._stop()
            raise BlobError("the repository does not have its content")
        size = int(header[2])
        content = output.read(min(size, limit))
        if size > limit:
            self._stop()  # rather than read the rest
        elif len(content) < size:
            self._stop()
            raise BlobError("git has ended unexpectedly")
        else:
            output.read(1)  # the line break after the content
        return content

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()


LINK_MODE = "120000"
SUBMODULE_MODE = "160000"
_MAX_LINKS = 40  # as Linux follows
_MAX_TARGET_BYTES = 4096


class TreeEntry(NamedTuple):
    """An entry of a tree at a path: the mode in octal digits, and the name of the object."""

    mode: str
    object: str
    is_conflict: bool = False


def index_entries() -> dict[str, TreeEntry]:
    """Return the staged entries, by path from the root of the repository. Raises GitError."""
    entries = {}
    for record in git_records("ls-files", "--stage", "--full-name", "-z", ":/"):
        facts, _, path = record.partition(b"\t")
        mode, name, stage = facts.decode().split(" ")
        entries[os.fsdecode(path)] = TreeEntry(mode, name, is_conflict=stage != "0")
    return entries


def commit_entries(revision: str) -> dict[str, TreeEntry]:
    """Return the entries of the tree of `revision`, by path from its root. Raises GitError."""
    entries = {}
    for record in git_records("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", revision):
        facts, _, path = record.partition(b"\t")
        mode, _, name = facts.decode().split(" ")
        entries[os.fsdecode(path)] = TreeEntry(mode, name)
    return entries


class GitTree:
    """Entries as a tree of files, which lies in the folder `root`.

    Nothing outside of `entries` is ever read. Links are followed within the tree. Relative paths
    are from the folder that was the working folder when this object was made.
    """

    def __init__(self, root: str, entries: dict[str, TreeEntry], blobs: BlobReader) -> None:
        self.root = root
        self.entries = entries
        self._here = os.path.realpath(os.getcwd())  # on Windows, as the user has typed it
        self._blobs = blobs
        self._targets: dict[str, str] = {}
        self._links = {path for path, entry in entries.items() if entry.mode == LINK_MODE}

    def real_path(self, path: str) -> str:
        """The absolute path without links, as far as they lead to something in the tree."""
        return self._resolve_links(path)[0]

    def links_and_file(self, path: str) -> list[str]:
        """Each link on the way to the file at `path`, and the file itself, from the root on."""
        place, links = self._resolve_links(path)
        end = self._path_in_tree(place)
        return links if end is None else [*links, end]

    def _resolve_links(self, path: str) -> tuple[str, list[str]]:
        """The real path, and the links on the way to it."""
        links: list[str] = []
        inner = self._path_in_tree(path)
        if inner is None:
            return os.path.normpath(os.path.join(self._here, path)), links
        for _ in range(_MAX_LINKS):
            link = self._first_link(inner)
            if link is None:
                break
            links.append(link)
            target = self._link_target(self.entries[link].object)
            if target is None:
                break
            above, rest = os.path.dirname(link), inner[len(link) + 1 :]
            place = os.path.normpath(os.path.join(self.root, above, target, rest))
            followed = self._path_in_tree(place)
            if followed is None:
                return place, links
            inner = followed
        return os.path.normpath(os.path.join(self.root, inner)), links

    def exists(self, path: str) -> bool:
        """Return whether the tree has an entry at `path`."""
        return self._path_in_tree(path) in self.entries

    def is_link(self, path: str) -> bool:
        """Return whether the tree has a symbolic link at `path`."""
        return self._path_in_tree(path) in self._links

    def is_file(self, path: str) -> bool:
        """Return whether the tree has a regular file at `path`, perhaps at the end of links."""
        return self._regular_file_entry(path) is not None

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file, up to `limit` bytes. Raises OSError."""
        entry = self._regular_file_entry(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._blobs.read(entry.object, limit)

    def path_without_links(self, path: str) -> str | None:
        """The path of the file from the root on, with links followed; None if it is outside."""
        return self._path_in_tree(self.real_path(path))

    def _path_in_tree(self, path: str) -> str | None:
        """`path` from the root of the tree on; None if it is outside."""
        return relative_path_inside(os.path.normpath(os.path.join(self._here, path)), self.root)

    def _link_target(self, name: str) -> str | None:
        """Return the target of the link with the object `name`; None if that cannot be read."""
        if name not in self._targets:
            try:
                target = os.fsdecode(self._blobs.read(name, _MAX_TARGET_BYTES))
            except OSError:
                return None
            self._targets[name] = target
        return self._targets[name]

    def _first_link(self, path: str) -> str | None:
        """The link that comes first on the way to `path`."""
        end = 0
        while self._links and end >= 0:
            end = path.find("/", end + 1)
            if (part := path if end < 0 else path[:end]) in self._links:
                return part
        return None

    def _regular_file_entry(self, path: str) -> TreeEntry | None:
        """The regular file at `path`."""
        inner = self.path_without_links(path)
        entry = None if inner is None else self.entries.get(inner)
        return None if entry is None or entry.mode in {LINK_MODE, SUBMODULE_MODE} else entry


MAX_FILES = 20_000
MAX_TOTAL_BYTES = 256 * 1024 * 1024
_TOO_MANY_MESSAGE = (
    f"what is staged there has more than {MAX_FILES} files or {MAX_TOTAL_BYTES >> 20} MiB, "
    "so gpuward does not write it out to render it; leave --staged out"
)


@contextmanager
def working_copy(tree: GitTree, paths: Iterable[str]) -> Iterator[None]:
    """Write the files at `paths` of the tree out, and work in the copy of the working folder.

    So names relative to the working folder mean the same files as in the tree. In the place of a
    link is the file that it leads to. Links to folders or out of the tree, files of more than 10
    MiB and conflicts are left out: what needs them cannot be rendered.

    Raises GitError beyond the bounds, and if a file cannot be written.
    """
    here = os.getcwd()
    with TemporaryDirectory(prefix="gpuward-") as folder:
        inside = os.path.join(folder, os.path.relpath(here, tree.root))
        os.makedirs(inside, exist_ok=True)
        _write_files(tree, paths, folder)
        os.chdir(inside)
        try:
            yield
        finally:
            os.chdir(here)


def _write_files(tree: GitTree, paths: Iterable[str], folder: str) -> None:
    left = MAX_TOTAL_BYTES
    for number, path in enumerate(paths):
        place = os.path.normpath(os.path.join(tree.root, path))
        if tree.entries[path].is_conflict or not tree.is_file(place):
            continue  # so is a path that leads out of the tree
        try:
            content = tree.read(place, MAX_BYTES + 1)
            left -= len(content)
            if number >= MAX_FILES or left < 0:
                raise GitError(_TOO_MANY_MESSAGE)
            if len(content) <= MAX_BYTES:
                _write_file(os.path.join(folder, os.path.relpath(place, tree.root)), content)
        except OSError as error:
            why = reason_of(error)
            raise GitError(f"{path}: not written out to be rendered: {why}") from error


def _write_file(file: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "xb") as out:  # there are no links in the folder
        out.write(content)


# Folders that are ignored as a whole are one record, which ends with a slash.
_LIST_IGNORED_COMMAND = (
    "ls-files",
    "-z",
    "--others",
    "--ignored",
    "--directory",
)


def ignored_paths(folder: str) -> frozenset[str]:
    """The files and folders in `folder` that the repository around it ignores, as normal paths.

    They begin with `folder`. What is tracked is not ignored. Empty if `folder` itself is ignored.

    Raises GitError.
    """
    only_gitignore = BOUNDS.reads_only_gitignore
    lists = "--exclude-per-directory=.gitignore" if only_gitignore else "--exclude-standard"
    command = (*_LIST_IGNORED_COMMAND, lists)
    records = {os.fsdecode(record) for record in git_records(*command, folder=folder)}
    if "./" in records:
        return frozenset()
    return frozenset(os.path.normpath(os.path.join(folder, record)) for record in records)
