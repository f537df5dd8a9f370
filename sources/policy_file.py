"""Find the policy of a run."""

import os
from typing import NamedTuple

from policies.loading import (
    MAX_BYTES,
    POLICY_FILE,
    PolicyError,
    load_policy_or_config_map,
    read_policy_file,
    refuse_too_large,
)
from policies.policy import Policy
from sources.sources import DISK, FileTree


class PolicyChoice(NamedTuple):
    """What the options say about the policy.

    `file`, if not None, is always read from disk. Otherwise the nearest file in `tree` counts,
    unless the run is `isolated`. `profiles`, if not empty, replace those of the policy.
    """

    file: str | None
    profiles: list[str]
    tree: FileTree = DISK
    isolated: bool = False

    def load(self) -> tuple[Policy, str]:
        """The policy, and the name of its file, which is empty for the default policy.

        Raises PolicyError.
        """
        if self.file is not None or self.isolated:
            return load_policy_or_config_map(self.file, self.profiles), self.file or ""
        file = nearest_policy(os.getcwd(), self.tree)
        return load_policy_or_config_map(file, self.profiles, self._read), file or ""

    def _read(self, path: str) -> bytes:
        if self.tree is DISK:
            return read_policy_file(path)
        try:
            return refuse_too_large(path, self.tree.read(path, MAX_BYTES + 1))
        except OSError as error:
            raise PolicyError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def nearest_policy(folder: str, tree: FileTree = DISK) -> str | None:
    """The policy file of `tree` nearest to `folder`, from there up to the repository's root."""
    here, folders = folder, [folder]
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            del folders[1:]  # without a repository, a file further up is not for this folder
            break
        here = above
        folders.append(here)
    for place in folders:
        file = os.path.join(place, POLICY_FILE)
        if tree.exists(file):
            return os.path.relpath(file, folder)
        if tree.exists(other := file.removesuffix(".yaml") + ".yml"):
            raise PolicyError(f"{other}: a policy is looked for as {POLICY_FILE}; rename the file")
    return None
