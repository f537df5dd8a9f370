"""Find the policy of a run."""

from __future__ import annotations

import os

from policies.files import POLICY_FILE
from policies.loading import PolicyError


def nearest_policy(folder: str) -> str | None:
    """The policy file nearest to `folder`, from there up to the root of the repository."""
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
        if os.path.lexists(file):
            return os.path.relpath(file, folder)
        if os.path.lexists(other := file.removesuffix(".yaml") + ".yml"):
            raise PolicyError(f"{other}: a policy is looked for as {POLICY_FILE}; rename the file")
    return None
