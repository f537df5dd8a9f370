"""The policies of the folders in which documents are, as they are on disk."""

from __future__ import annotations

import os
from typing import NamedTuple

from policies.loading import default_policy, load_policy_file, read_policy_file
from policies.policy import Policy, RuleSettings
from rules.catalog.index import CATALOG
from rules.finding import Action
from sources.paths import Exclusion
from sources.policy_file import (
    FilePolicy,
    PolicyLayer,
    applying_settings,
    combined_policy,
    policy_files,
)


class EditorSettings(NamedTuple):
    """The options of the command line, which have the meaning that they have for the linter."""

    policy: str | None = None
    profiles: tuple[str, ...] = ()
    namespace: str | None = None
    notes: bool = False
    isolated: bool = False


# For what the policy leaves out.
_POLICY_WITHOUT_RULES = default_policy()._replace(
    rules={rule.name: RuleSettings(action=Action.OFF) for rule in CATALOG}
)


class _LoadedFile(NamedTuple):
    """A policy, with the states of all files that it was read from."""

    states_by_file: dict[str, object]
    policy: Policy


class EditorPolicies:
    """Finds and loads policies, and keeps each as long as its file does not change."""

    def __init__(self, settings: EditorSettings) -> None:
        self._settings = settings
        self._loaded: dict[str, _LoadedFile] = {}

    def find(self, name: str, workspace: str) -> FilePolicy:
        """The policy for the document `name`, found as the linter does that runs in `workspace`.

        Raises PolicyError, whose message names the file.
        """
        settings = self._settings
        files = [settings.policy or ""]
        folder = os.path.dirname(name) or workspace
        if settings.policy is None and not settings.isolated:
            files = policy_files(folder, workspace) or files
        path = os.path.join(workspace, name)
        policies = ((file, self._load(file)) for file in files)
        chain = [
            PolicyLayer(file, one, applying_settings(one, workspace, path))
            for file, one in policies
        ]
        found = combined_policy(chain)
        outermost = chain[-1]
        place = workspace if settings.policy else os.path.dirname(outermost.file)
        patterns = tuple(outermost.policy.lint.get("exclude", ()))
        if patterns and Exclusion(of_policy=(place, patterns)).excludes(path):
            rules = _POLICY_WITHOUT_RULES.rule_set()
            return FilePolicy(_POLICY_WITHOUT_RULES, rules, found.file)
        return found

    def _load(self, file: str) -> Policy:
        known = self._loaded.get(file)
        if known is not None and all(
            _file_state(f) == state for f, state in known.states_by_file.items()
        ):
            return known.policy
        states = {file: _file_state(file)}

        def read(path: str) -> bytes:
            states[path] = _file_state(path)
            return read_policy_file(path)

        policy = load_policy_file(file or None, list(self._settings.profiles), read)
        self._loaded[file] = _LoadedFile(states, policy)
        return policy


def _file_state(file: str) -> object:
    """Return a value that changes when the file does."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
