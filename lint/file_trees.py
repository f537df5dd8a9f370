"""Where the files of a run are: on disk, or elsewhere, such as in the index of Git."""

from __future__ import annotations

import os
from typing import Protocol

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # which only Windows has
_PIECE = 1 << 16


class FileTree(Protocol):
    """Files by their paths, which are absolute or relative to the working folder."""

    def real_path(self, path: str) -> str:
        """The absolute path without links."""

    def exists(self, path: str) -> bool:
        """Whether there is something at `path`, even a link that leads nowhere."""

    def is_link(self, path: str) -> bool:
        """Whether there is a symbolic link."""

    def is_file(self, path: str) -> bool:
        """Whether there is a regular file, perhaps at the end of links."""

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file, up to `limit` bytes. Raises OSError."""


class DiskTree:
    """The files on disk."""

    def real_path(self, path: str) -> str:
        """The absolute path without links."""
        return os.path.realpath(path)

    def exists(self, path: str) -> bool:
        """Whether there is something at `path`, even a link that leads nowhere."""
        return os.path.lexists(path)

    def is_link(self, path: str) -> bool:
        """Whether there is a symbolic link."""
        return os.path.islink(path)

    def is_file(self, path: str) -> bool:
        """Whether there is a regular file, perhaps at the end of links."""
        return os.path.isfile(path)

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file, up to `limit` bytes. Raises OSError."""
        # Most files are small, and to make a file object of one takes longer than to read it.
        descriptor = os.open(path, _READ)
        try:
            pieces = []
            while limit and (piece := os.read(descriptor, min(limit, _PIECE))):
                pieces.append(piece)
                limit -= len(piece)
        finally:
            os.close(descriptor)
        return b"".join(pieces)


DISK = DiskTree()
