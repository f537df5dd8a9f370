"""What Git ignores, by its own word."""

import os

from sources.git.command import git_records

# Folders that are ignored as a whole are one record, which ends with a slash.
_LIST_IGNORED_COMMAND = (
    "ls-files",
    "-z",
    "--others",
    "--ignored",
    "--exclude-standard",
    "--directory",
)


def ignored_paths(folder: str) -> frozenset[str]:
    """The files and folders in `folder` that the repository around it ignores, as normal paths.

    They begin with `folder`. What is tracked is not ignored. Empty if `folder` itself is ignored.

    Raises GitError.
    """
    records = {os.fsdecode(record) for record in git_records(*_LIST_IGNORED_COMMAND, folder=folder)}
    if "./" in records:
        return frozenset()
    return frozenset(os.path.normpath(os.path.join(folder, record)) for record in records)
