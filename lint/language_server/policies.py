"""The policies of the folders in which documents are, as they are on disk."""

from __future__ import annotations

import os
from typing import NamedTuple

from policies.loading import load_policy_or_config_map
from policies.policy import Policy
from sources.policy_file import nearest_policy


class Settings(NamedTuple):
    """The options of the command line, which have the meaning that they have for the linter."""

    policy: str | None = None
    profiles: tuple[str, ...] = ()
    namespace: str | None = None
    notes: bool = False
    isolated: bool = False


class FoundPolicy(NamedTuple):
    """A policy and the path of its file, which is empty for the default policy."""

    policy: Policy
    file: str


class Policies:
    """Finds and loads policies, and keeps each as long as its file does not change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loaded: dict[str, tuple[object, Policy]] = {}

    def find(self, folder: str) -> FoundPolicy:
        """The policy for documents in `folder`, found as the linter does that runs there.

        Raises PolicyError, whose message names the file.
        """
        file = self._settings.policy
        if file is None and not self._settings.isolated:
            nearest = nearest_policy(folder)
            file = os.path.normpath(os.path.join(folder, nearest)) if nearest else None
        name = file or ""
        state = _file_state(name)
        known = self._loaded.get(name)
        if known is None or known[0] != state:
            policy = load_policy_or_config_map(file, list(self._settings.profiles))
            self._loaded[name] = known = (state, policy)
        return FoundPolicy(known[1], name)


def _file_state(file: str) -> object:
    """What changes when the file does."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
