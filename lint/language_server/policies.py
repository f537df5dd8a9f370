"""The policies of the folders in which documents are, as they are on disk."""

from __future__ import annotations

import os
from typing import NamedTuple

from policies.loading import load_policy_or_config_map
from sources.policy_file import FoundPolicy, load_nearest, policy_files


class Settings(NamedTuple):
    """The options of the command line, which have the meaning that they have for the linter."""

    policy: str | None = None
    profiles: tuple[str, ...] = ()
    namespace: str | None = None
    notes: bool = False
    isolated: bool = False


class Policies:
    """Finds and loads policies, and keeps each as long as its file does not change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loaded: dict[tuple[str, ...], tuple[object, FoundPolicy]] = {}

    def find(self, folder: str, workspace: str) -> FoundPolicy:
        """The policy for documents in `folder`, found as the linter does that runs in `workspace`.

        Raises PolicyError, whose message names the file.
        """
        settings = self._settings
        files: list[str] = []
        if settings.policy is None and not settings.isolated:
            files = policy_files(folder, workspace)
        names = tuple(files) or (settings.policy or "",)
        state = [*map(_file_state, names)]
        known = self._loaded.get(names)
        if known is None or known[0] != state:
            found = self._load(files)
            self._loaded[names] = known = (state, found)
        return known[1]

    def _load(self, files: list[str]) -> FoundPolicy:
        profiles = list(self._settings.profiles)
        if files:
            return load_nearest(files, profiles)
        file = self._settings.policy
        return FoundPolicy(load_policy_or_config_map(file, profiles), file or "")


def _file_state(file: str) -> object:
    """What changes when the file does."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
