"""What the next commit would have: `gpuward lint --staged`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from lint.git.blobs import Blobs
from lint.git.command import GitError, git, git_line
from lint.git.inputs import changed_sources
from lint.git.trees import GitTree, commit_entries, index_entries
from lint.sources import SkippedSource, Source, UnreadableSource, UsageError


class StagedFiles:
    """The index of the repository around the working folder."""

    def __init__(self, tree: GitTree) -> None:
        self.tree = tree

    def sources(
        self, paths: Collection[str], exclude: Collection[str]
    ) -> Iterator[Source | SkippedSource | UnreadableSource]:
        """The manifests that the next commit would add or change, with their staged contents.

        `paths`, if not empty, are the files and folders that count. Raises UsageError for one
        outside of the repository.
        """
        root = self.tree.root
        folders = [os.path.realpath(path) for path in paths]
        for path, folder in zip(paths, folders, strict=True):
            if path == "-" or os.path.commonpath((folder, root)) != root:
                raise UsageError(f"{path} is outside of the repository, so nothing in it is staged")
        before = commit_entries("HEAD") if _has_commits() else {}
        for source in changed_sources(self.tree, before, exclude):
            place = os.path.abspath(source.name)
            if not folders or any(os.path.commonpath((place, f)) == f for f in folders):
                yield source


@contextmanager
def staged_files() -> Iterator[StagedFiles]:
    """What is staged. Raises GitError outside of a repository with a work tree."""
    root = git_line("rev-parse", "--show-toplevel")
    with Blobs() as blobs:
        yield StagedFiles(GitTree(root, index_entries(), blobs))


def _has_commits() -> bool:
    try:
        git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitError:
        return False
    return True
