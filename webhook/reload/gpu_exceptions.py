"""The GpuExceptions that the webhook applies, read again when their file changes.

A controller writes the file (`delegation`). Nothing in it is trusted: every object is compared with
what the policy delegates, so that whoever may write the file gains no more than that. Without a
file that can be used there are no such exceptions.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policies.exceptions_file import MAX_BYTES, parse_exceptions
from policies.gpu_exceptions import acceptances
from policies.policy import Policy
from rules.policy_exception import PolicyException
from webhook.reload.checked_files import CheckedFiles, error_text, read_bounded
from webhook.telemetry.log import Log


class GpuExceptionsFile:
    """The GpuExceptions in the file at `path`, none until `reload()` is called."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        nothing: tuple[Mapping[str, Any], ...] = ()
        self._file = CheckedFiles(lambda: [read_bounded(path, MAX_BYTES)], _parse, nothing, clock)
        self._bug = ""
        self._logged: tuple[str, int] | None = None

    @property
    def error(self) -> str:
        """Why there are no such exceptions; empty if the file is used."""
        return self._file.error or self._bug

    @property
    def valid(self) -> bool:
        """Whether the file is used, and will be for a while."""
        return not self._bug and self._file.valid

    def reload(self) -> bool:
        """Read the file again; whether other objects are to be used than before."""
        return self._file.reload()

    def accepted_by(self, policy: Policy) -> tuple[PolicyException, ...]:
        """The exceptions that `policy` accepts today, or accepted until lately."""
        today = datetime.datetime.fromtimestamp(self._file.clock(), tz=datetime.UTC).date()
        try:
            found = [found for _, found in acceptances(self._file.used, policy, today)]
        except Exception as error:  # noqa: BLE001  # a bug here must not keep the policy from being used
            self._bug = f"gpuward itself failed, please report it: {error_text(error)}"
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


def _parse(contents: Sequence[bytes]) -> tuple[datetime.datetime, tuple[Mapping[str, Any], ...]]:
    file = parse_exceptions(contents[0])
    return file.checked_at, file.objects
