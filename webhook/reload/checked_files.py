"""What a controller has found in the cluster, in files that it renews while it works.

Files that were checked too long ago are not used: what they say may have ended since.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

V = TypeVar("V")

STALE_SECONDS = 3600.0
"""Files that were checked longer ago are not used."""


class CheckedFiles(Generic[V]):
    """What `parse` makes of the files that `read` reads; `nothing` until `reload()` is called.

    `parse` returns also the time at which the controller checked the files. Both raise ValueError
    for files that cannot be used, and `read` OSError.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[bytes]],
        parse: Callable[[Sequence[bytes]], tuple[datetime.datetime, V]],
        nothing: V,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.used = nothing
        """What applies now."""
        self.error = "it was not read yet"
        """Why nothing is used; empty if the files are."""
        self._contents: Sequence[bytes] = ()
        self._read_files = read
        self._parse = parse
        self._nothing = self._parsed = nothing
        self._checked_at = 0.0

    @property
    def valid(self) -> bool:
        """Whether the files are used, and will be for half of `STALE_SECONDS` at least."""
        return not self.error and self._age <= STALE_SECONDS / 2

    @property
    def _age(self) -> float:
        """The seconds since the files were checked. A time that lies ahead is as wrong."""
        return abs(self.clock() - self._checked_at)

    def reload(self) -> bool:
        """Read the files again; whether something else is to be used than before."""
        before = self.used
        try:
            self._read()
        except (OSError, ValueError) as error:
            self.error, self.used = error_text(error), self._nothing
        else:
            self.error, self.used = "", self._parsed
        return self.used != before

    def _read(self) -> None:
        contents = self._read_files()
        if contents != self._contents:
            checked, self._parsed = self._parse(contents)
            self._contents, self._checked_at = contents, checked.timestamp()
        if self._age > STALE_SECONDS:
            checked = datetime.datetime.fromtimestamp(self._checked_at, tz=datetime.UTC)
            raise ValueError(
                f"it was checked at {checked:%Y-%m-%d %H:%M} UTC, which is too long ago"
            )


def read_bounded(path: str, limit: int) -> bytes:
    """The file at `path`, at most one byte more than `limit`. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(limit + 1)


def error_text(error: Exception) -> str:
    """What an error says, without the path."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
