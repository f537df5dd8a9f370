"""The files of a commit, or those that the next commit would have."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from lint.git.blobs import Blobs
from sources.git.command import git_records

LINK = "120000"
SUBMODULE = "160000"
_MAX_LINKS = 40  # as Linux follows
_MAX_TARGET = 4096


class Entry(NamedTuple):
    """What a tree has at a path: the mode in octal digits, and the name of the object."""

    mode: str
    object: str
    is_conflict: bool = False


def index_entries() -> dict[str, Entry]:
    """What is staged, by path from the root of the repository. Raises GitError."""
    entries = {}
    for record in git_records("ls-files", "--stage", "--full-name", "-z", ":/"):
        facts, _, path = record.partition(b"\t")
        mode, name, stage = facts.decode().split(" ")
        entries[os.fsdecode(path)] = Entry(mode, name, is_conflict=stage != "0")
    return entries


def commit_entries(revision: str) -> dict[str, Entry]:
    """What the tree of `revision` has, by path from its root. Raises GitError."""
    entries = {}
    for record in git_records("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", revision):
        facts, _, path = record.partition(b"\t")
        mode, _, name = facts.decode().split(" ")
        entries[os.fsdecode(path)] = Entry(mode, name)
    return entries


class GitTree:
    """Entries as a tree of files, which lies in the folder `root`.

    Nothing outside of `entries` is ever read. Links are followed within the tree. Relative paths
    are from the folder that was the working folder when this object was made.
    """

    def __init__(self, root: str, entries: dict[str, Entry], blobs: Blobs) -> None:
        self.root = root
        self.entries = entries
        self._here = os.getcwd()
        self._blobs = blobs
        self._targets: dict[str, str] = {}
        self._links = {path for path, entry in entries.items() if entry.mode == LINK}

    def real_path(self, path: str) -> str:
        """The absolute path without links, as far as they lead to something in the tree."""
        return self._follow(path)[0]

    def way(self, path: str) -> list[str]:
        """Each link on the way to the file at `path`, and the file itself, from the root on."""
        place, links = self._follow(path)
        end = self._inside(place)
        return links if end is None else [*links, end]

    def _follow(self, path: str) -> tuple[str, list[str]]:
        """The real path, and the links on the way to it."""
        links: list[str] = []
        inner = self._inside(path)
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
            followed = self._inside(place)
            if followed is None:
                return place, links
            inner = followed
        return os.path.normpath(os.path.join(self.root, inner)), links

    def exists(self, path: str) -> bool:
        """Whether the tree has an entry at `path`."""
        return self._inside(path) in self.entries

    def is_link(self, path: str) -> bool:
        """Whether the tree has a symbolic link at `path`."""
        return self._inside(path) in self._links

    def is_file(self, path: str) -> bool:
        """Whether the tree has a regular file at `path`, perhaps at the end of links."""
        return self._entry(path) is not None

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file, up to `limit` bytes. Raises OSError."""
        entry = self._entry(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._blobs.read(entry.object, limit)

    def target(self, path: str) -> str | None:
        """Where the file at `path` is without links, from the root on; None if it is outside."""
        return self._inside(self.real_path(path))

    def _inside(self, path: str) -> str | None:
        """`path` from the root of the tree on; None if it is outside."""
        full = os.path.normpath(os.path.join(self._here, path))
        if full == self.root:
            return ""
        inside = full.removeprefix(os.path.join(self.root, ""))
        return None if inside == full else inside

    def _link_target(self, name: str) -> str | None:
        """Where a link leads whose object is called `name`; None if that cannot be read."""
        if name not in self._targets:
            try:
                target = os.fsdecode(self._blobs.read(name, _MAX_TARGET))
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

    def _entry(self, path: str) -> Entry | None:
        """The regular file at `path`."""
        inner = self.target(path)
        entry = None if inner is None else self.entries.get(inner)
        return None if entry is None or entry.mode in {LINK, SUBMODULE} else entry
