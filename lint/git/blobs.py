"""The contents of files in a Git repository."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Self

from sources.git.command import pipe, start_git


class BlobError(OSError):
    """A content that cannot be had; the message says why."""


class Blobs:
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
            errors = subprocess.DEVNULL  # nobody reads them while git runs
            self._process = start_git("-C", self._folder, "cat-file", "--batch", errors=errors)
        process = self._process
        requests, output = pipe(process.stdin), pipe(process.stdout)
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
