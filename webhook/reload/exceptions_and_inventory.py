"""Files in which a controller keeps what it has found in the cluster, renewed while it works.

Files that were checked too long ago are not used: what they say may have ended since.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from policies.controller_files import (
    MAX_EXCEPTIONS_BYTES,
    MAX_PART_BYTES,
    MAX_PARTS,
    inventory_file_name,
    parse_exceptions,
    parse_inventory,
)
from policies.gpu_exceptions import acceptances
from policies.policy import Policy
from rules.engine.rule_set import PolicyException
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from terminal import reason_of
from webhook.telemetry.log import Log

V = TypeVar("V")

STALE_SECONDS = 3600.0
"""Files that were checked longer ago are not used."""


class CheckedFiles(Generic[V]):
    """The files that `read` reads, as `parse` parses them; `nothing` until `reload()` is called.

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
        """The parsed content that applies now."""
        self.error = "it was not read yet"
        """Why nothing is used; empty if the files are."""
        self._contents: Sequence[bytes] = ()
        self._read_files = read
        self._parse = parse
        self._nothing = self._parsed = nothing
        self._checked_at = 0.0

    @property
    def is_valid(self) -> bool:
        """Return whether the files are used, and will be for half of `STALE_SECONDS` at least."""
        return not self.error and self._age_seconds <= STALE_SECONDS / 2

    @property
    def _age_seconds(self) -> float:
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
        if self._age_seconds > STALE_SECONDS:
            checked = datetime.datetime.fromtimestamp(self._checked_at, tz=datetime.UTC)
            raise ValueError(
                f"it was checked at {checked:%Y-%m-%d %H:%M} UTC, which is too long ago"
            )


def read_at_most(path: str, limit: int) -> bytes:
    """The file at `path`, at most one byte more than `limit`. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(limit + 1)


def error_text(error: Exception) -> str:
    """Return the text of an error, without the path."""
    if isinstance(error, OSError):
        return reason_of(error)
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class GpuExceptionsFile:
    """The GpuExceptions in the file at `path`, none until `reload()` is called.

    A controller writes the file (`cluster.controllers.gpu_exceptions`). Nothing in it is trusted:
    every object is compared with what the policy allows, so that an account that may write the file
    gains no more than that. Without a usable file there are no such exceptions.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        nothing: tuple[Mapping[str, Any], ...] = ()
        self._file = CheckedFiles(
            lambda: [read_at_most(path, MAX_EXCEPTIONS_BYTES)], _parse_exceptions, nothing, clock
        )
        self._bug = ""
        self._logged: tuple[str, int] | None = None

    @property
    def error(self) -> str:
        """Return why there are no such exceptions; empty if the file is used."""
        return self._file.error or self._bug

    @property
    def is_valid(self) -> bool:
        """Return whether the file is used, and will be for a while."""
        return not self._bug and self._file.is_valid

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


def _parse_exceptions(
    contents: Sequence[bytes],
) -> tuple[datetime.datetime, tuple[Mapping[str, Any], ...]]:
    file = parse_exceptions(contents[0])
    return file.checked_at, file.objects


class InventoryFiles:
    """The inventory in the files of `folder`, empty until `reload()` is called.

    A controller writes the files (`gpuward inventory run`). Without usable files the inventory is
    empty, and the rules that need it find nothing.
    """

    def __init__(self, folder: str, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._files = CheckedFiles(lambda: _read(folder), _parse_inventory, EMPTY_INVENTORY, clock)
        self._logged: tuple[str, int] | None = None

    @property
    def inventory(self) -> Inventory:
        """Return the inventory as it is known now."""
        return self._files.used

    @property
    def is_valid(self) -> bool:
        """Return whether the files are used, and will be for a while."""
        return self._files.is_valid

    def reload(self) -> bool:
        """Read the files again; whether something else is known than before."""
        return self._files.reload()

    def log_changes(self, log: Log) -> None:
        """Log whether the files are used, and how many objects they have, if that changed."""
        error, count = self._files.error, len(self.inventory)
        if (error, count) == self._logged:
            return
        self._logged = (error, count)
        if error:
            log.write("error", "inventory not used", folder=self._folder, error=error)
        else:
            log.write("info", "inventory loaded", objects=count)


def _read(folder: str) -> Sequence[bytes]:
    contents = []
    for part in range(MAX_PARTS):
        path = os.path.join(folder, inventory_file_name(part))
        if part and not os.path.exists(path):
            break
        contents.append(read_at_most(path, MAX_PART_BYTES))
    return contents


def _parse_inventory(contents: Sequence[bytes]) -> tuple[datetime.datetime, Inventory]:
    found = parse_inventory(contents)
    return found.checked_at, found.inventory
