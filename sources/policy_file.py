"""Find the policies of a run: for each file the nearest one, as docs/policy.md says."""

import os
from collections.abc import Callable
from typing import NamedTuple

from policies.layers import LayerError, keep_protected
from policies.loading import (
    MAX_BYTES,
    POLICY_FILE,
    PolicyError,
    load_policy_or_config_map,
    read_policy_file,
    refuse_too_large,
)
from policies.policy import Policy
from sources.containment import is_inside
from sources.sources import DISK, FileTree


class FoundPolicy(NamedTuple):
    """A policy, and the name of its file, which is empty for the default policy."""

    policy: Policy
    file: str


class PolicyChoice(NamedTuple):
    """What the options say about the policy.

    `file`, if not None, is always read from disk. Otherwise the nearest file in `tree` counts,
    unless the run is `isolated`. `profiles`, if not empty, replace those of the policy.
    """

    file: str | None
    profiles: list[str]
    tree: FileTree = DISK
    isolated: bool = False

    def load(self) -> FoundPolicy:
        """The policy for the working folder. Raises PolicyError."""
        return Policies(self).of_folder("")


class Policies:
    """The policies of the folders of a run, each found and read once.

    Relative paths are from the folder that was the working folder when this object was made.
    """

    def __init__(self, choice: PolicyChoice) -> None:
        self._choice = choice
        self._here = os.getcwd()
        self._by_folder: dict[str, FoundPolicy] = {}
        self._by_files: dict[tuple[str, ...], FoundPolicy] = {}

    def of_file(self, name: str) -> FoundPolicy:
        """The policy for the file called `name`. Raises PolicyError."""
        return self.of_folder(os.path.dirname(name))

    def of_folder(self, folder: str) -> FoundPolicy:
        """The policy for the files in `folder`. Raises PolicyError."""
        found = self._by_folder.get(folder)
        if found is None:
            found = self._by_folder[folder] = self._find(folder)
        return found

    def _find(self, folder: str) -> FoundPolicy:
        choice = self._choice
        files: tuple[str, ...] = ()
        if choice.file is None and not choice.isolated:
            place = os.path.normpath(os.path.join(self._here, folder))
            files = tuple(policy_files(place, self._here, choice.tree))
        if files not in self._by_files:
            self._by_files[files] = self._loaded(files)
        return self._by_files[files]

    def _loaded(self, files: tuple[str, ...]) -> FoundPolicy:
        choice = self._choice
        if not files:
            policy = load_policy_or_config_map(choice.file, choice.profiles)
            return FoundPolicy(policy, choice.file or "")
        names = [os.path.relpath(file, self._here) for file in files]
        return load_nearest(names, choice.profiles, self._read)

    def _read(self, path: str) -> bytes:
        tree, place = self._choice.tree, os.path.join(self._here, path)
        if tree is DISK:
            return read_policy_file(place, path)
        try:
            return refuse_too_large(path, tree.read(place, MAX_BYTES + 1))
        except OSError as error:
            raise PolicyError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def load_nearest(
    names: list[str], profiles: list[str], read_file: Callable[[str], bytes] = read_policy_file
) -> FoundPolicy:
    """The policy in the first of the files `names`; the others are those around it.

    None of these is loosened where it lets nobody suppress a rule. Raises PolicyError.
    """
    loaded = [load_policy_or_config_map(name, profiles, read_file) for name in names]
    policy = loaded.pop()
    for inner, name, outer in zip(reversed(loaded), names[-2::-1], names[:0:-1], strict=True):
        try:
            policy = keep_protected(inner, policy, outer)
        except LayerError as error:
            raise PolicyError(f"{name}: {error}") from error
    return FoundPolicy(policy, names[0])


def policy_files(folder: str, here: str, tree: FileTree = DISK) -> list[str]:
    """The policy files of `tree` for `folder`, the nearest first, up to the repository's root.

    Without a repository, a file further up is not for this folder: then they end with the working
    folder `here` if that is around `folder`, else with `folder` itself. All paths are absolute.

    Raises PolicyError for a policy with another ending.
    """
    found = []
    for place in _folders(folder, here):
        file = os.path.join(place, POLICY_FILE)
        if tree.exists(file):
            found.append(file)
        elif tree.exists(other := file.removesuffix(".yaml") + ".yml"):
            name = os.path.relpath(other, here)
            raise PolicyError(f"{name}: a policy is looked for as {POLICY_FILE}; rename the file")
    return found


def _folders(folder: str, here: str) -> list[str]:
    folders = [folder]
    while not os.path.exists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above == folders[-1]:
            if not is_inside(folder, here):
                return [folder]
            return folders[: folders.index(here) + 1] if here in folders else [folder]
        folders.append(above)
    return folders


def nearest_policy(folder: str, tree: FileTree = DISK) -> str | None:
    """The policy file of `tree` nearest to `folder`, relative to it; None if there is none."""
    files = policy_files(folder, folder, tree)
    return os.path.relpath(files[0], folder) if files else None
