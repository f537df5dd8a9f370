"""A folder that paths of clients cannot leave, for reading and for writing."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from gpuward.mcp_server.tools import MAX_PATH_CHARACTERS, ToolError
from lint.fix.output import copy_attributes
from sources.containment import is_inside
from sources.sources import MAX_BYTES
from terminal import printable, reason_of

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER_FLAGS = _READ_FLAGS | getattr(os, "O_DIRECTORY", 0)


class Folder:
    """A folder, which stays the same while this object lives, also if another takes its name."""

    def __init__(self, path: str) -> None:
        """Open the folder at `path`. Raises OSError."""
        self.path = os.path.realpath(path)
        self._descriptor = os.open(self.path, _FOLDER_FLAGS)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def relative(self, path: str, *, may_be_new: bool = False) -> str:
        """Return `path` from this folder on, as commands take it, and where no link leads out.

        There must be something at it, unless it `may_be_new`. Raises ToolError.
        """
        shown = printable(path)[:200]
        if len(path) > MAX_PATH_CHARACTERS:
            raise ToolError(f"a path has more than {MAX_PATH_CHARACTERS:,} characters")
        if "\0" in path or printable(path) != path:
            raise ToolError(f"{shown}: a path has no control characters")
        if ".." in path.replace(os.sep, "/").split("/"):
            raise ToolError(f"{shown}: a path has no `..`")
        place = os.path.normpath(os.path.join(self.path, path))
        if not is_inside(place, self.path) or not is_inside(os.path.realpath(place), self.path):
            raise ToolError(f"{shown}: outside of the folder of the server")
        if not may_be_new and not os.path.lexists(place):
            raise ToolError(f"{shown} does not exist")
        relative = os.path.relpath(place, self.path)
        # What begins with a dash is not an option, and a single dash not standard input.
        return os.path.join(".", relative) if relative.startswith("-") else relative

    def read(self, name: str) -> bytes:
        """The content of the regular file at the relative path `name`; no link is followed.

        Raises ToolError.
        """
        try:
            with self._open_parent(name) as parent:
                descriptor = os.open(os.path.basename(name), _READ_FLAGS, dir_fd=parent)
                with os.fdopen(descriptor, "rb") as file:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise ToolError(f"{name}: not a regular file")
                    content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ToolError(f"{name}: {reason_of(error)}") from error
        if len(content) > MAX_BYTES:
            raise ToolError(f"{name}: larger than {MAX_BYTES >> 20} MiB")
        return content

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        """Replace the content of the file at the relative path `name`, which is `old`, by `new`.

        No link on the path is followed, also if one is put there meanwhile. The file has its old
        content or its new one at every moment, and keeps mode, owner and attributes. Raises
        ToolError.
        """
        if self.read(name) != old:
            raise ToolError(f"{name}: the file has changed meanwhile: call fix again")
        base, temporary = os.path.basename(name), f".gpuward-{secrets.token_hex(8)}.tmp"
        try:
            with self._open_parent(name) as parent:
                source = os.open(base, _READ_FLAGS, dir_fd=parent)
                try:
                    status = os.fstat(source)
                    if not status.st_mode & 0o222:
                        raise ToolError(f"{name}: the file is read-only")
                    _write_new(temporary, new, source, status, parent)
                    os.replace(temporary, base, src_dir_fd=parent, dst_dir_fd=parent)
                finally:
                    os.close(source)
                    with suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=parent)
                os.fsync(parent)
        except OSError as error:
            raise ToolError(f"{name}: {reason_of(error)}") from error

    @contextmanager
    def _open_parent(self, name: str) -> Iterator[int]:
        """The descriptor of the folder of `name`, which is reached without following a link."""
        descriptor = os.dup(self._descriptor)
        try:
            for part in os.path.normpath(name).split(os.sep)[:-1]:
                if part in {"", os.pardir}:
                    raise ToolError(f"{name}: not a path below the folder of the server")
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _write_new(name: str, content: bytes, source: int, status: os.stat_result, folder: int) -> None:
    """Write a new file in the open `folder`, with the attributes of the open file `source`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        copy_attributes(source, file.fileno(), status)
        os.fsync(file.fileno())
