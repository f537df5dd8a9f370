"""The GpuExceptions that the webhook applies, read again when their file changes.

A controller writes the file (`delegation`). Nothing in it is trusted: every object is compared with
what the policy delegates, so that whoever may write the file gains no more than that. Without a
file that can be used there are no such exceptions.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from typing import Any

from policies.exceptions_file import MAX_BYTES, parse_exceptions
from policies.gpu_exceptions import acceptances
from rules.policy import Policy, PolicyException
from webhook.telemetry.log import Log

STALE_SECONDS = 3600.0
"""A file that was checked longer ago is not used: the objects may have been deleted since."""


class GpuExceptionsFile:
    """The GpuExceptions in the file at `path`, none until `reload()` is called."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._content: bytes | None = None
        self._checked_at = 0.0
        self._objects: tuple[Mapping[str, Any], ...] = ()
        self._used: tuple[Mapping[str, Any], ...] = ()
        self._file_error = "it was not read yet"
        self._bug = ""
        self._logged: tuple[str, int] | None = None

    @property
    def error(self) -> str:
        """Why there are no such exceptions; empty if the file is used."""
        return self._file_error or self._bug

    @property
    def valid(self) -> bool:
        """Whether the file is used, and will be for half of `STALE_SECONDS` at least."""
        return not self.error and self._age <= STALE_SECONDS / 2

    @property
    def _age(self) -> float:
        """The seconds since the file was checked. A time that lies ahead is as wrong."""
        return abs(self._clock() - self._checked_at)

    def reload(self) -> bool:
        """Read the file again; whether other objects are to be used than before."""
        before = self._used
        try:
            self._read()
        except (OSError, ValueError) as error:
            self._file_error, self._used = _text(error), ()
        else:
            self._file_error, self._used = "", self._objects
        return self._used != before

    def accepted_by(self, policy: Policy) -> tuple[PolicyException, ...]:
        """The exceptions that `policy` accepts today, or accepted until lately."""
        today = datetime.datetime.fromtimestamp(self._clock(), tz=datetime.UTC).date()
        try:
            found = [found for _, found in acceptances(self._used, policy, today)]
        except Exception as error:  # noqa: BLE001  # a bug here must not keep the policy from being used
            self._bug = f"gpuward itself failed, please report it: {_text(error)}"
            return ()
        self._bug = ""
        return tuple(each.exception for each in found if each.exception is not None)

    def log_changes(self, log: Log, count: int) -> None:
        """Log whether the file is used, and how many exceptions it gave, if that changed."""
        now = (self.error, count)
        if now == self._logged:
            return
        self._logged = now
        if self.error:
            log.write("error", "GpuExceptions not used", file=self._path, error=self.error)
        else:
            log.write("info", "GpuExceptions loaded", exceptions=count)

    def _read(self) -> None:
        with open(self._path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if content != self._content:
            file = parse_exceptions(content)
            self._content, self._objects = content, file.objects
            self._checked_at = file.checked_at.timestamp()
        if self._age > STALE_SECONDS:
            checked = datetime.datetime.fromtimestamp(self._checked_at, tz=datetime.UTC)
            raise ValueError(
                f"it was checked at {checked:%Y-%m-%d %H:%M} UTC, which is too long ago"
            )


def _text(error: Exception) -> str:
    """What an error says, without the path."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
