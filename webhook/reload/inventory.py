"""What the webhook knows of other objects of the cluster, read again when its files change.

A controller writes the files (`gpuward inventory run`). Without files that can be used nothing is
known, and the rules that need it say nothing.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Sequence

from policies.controller_files import MAX_BYTES, MAX_PARTS, file_name, parse_inventory
from rules.inventory.inventory import EMPTY, Inventory
from webhook.reload.checked_files import CheckedFiles, read_bounded
from webhook.telemetry.log import Log


class InventoryFiles:
    """The inventory in the files of `folder`, empty until `reload()` is called."""

    def __init__(self, folder: str, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._files = CheckedFiles(lambda: _read(folder), _parse, EMPTY, clock)
        self._logged: tuple[str, int] | None = None

    @property
    def inventory(self) -> Inventory:
        """What is known now."""
        return self._files.used

    @property
    def valid(self) -> bool:
        """Whether the files are used, and will be for a while."""
        return self._files.valid

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
        path = os.path.join(folder, file_name(part))
        if part and not os.path.exists(path):
            break
        contents.append(read_bounded(path, MAX_BYTES))
    return contents


def _parse(contents: Sequence[bytes]) -> tuple[datetime.datetime, Inventory]:
    found = parse_inventory(contents)
    return found.checked_at, found.inventory
