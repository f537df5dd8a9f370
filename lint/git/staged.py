"""What the next commit would have: `gpuward lint --staged`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from lint.git.blobs import Blobs
from lint.git.inputs import changed_paths, changed_sources
from lint.git.written_out import written_out
from sources.git.command import GitError, git, git_line
from sources.git.trees import Entry, GitTree, commit_entries, index_entries
from sources.sources import SkippedSource, Source, UnreadableSource, UsageError


class StagedFiles:
    """The index of the repository around the working folder, which `before` was committed of."""

    def __init__(self, tree: GitTree, before: Mapping[str, Entry]) -> None:
        self.tree = tree
        self._before = before

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
        for source in changed_sources(self.tree, self._before, exclude):
            place = os.path.abspath(source.name)
            if not folders or any(os.path.commonpath((place, f)) == f for f in folders):
                yield source

    def has(self, name: str) -> bool:
        """Whether the next commit would add, change or remove the file."""
        return self.tree.target(name) in self._differing

    def any_in(self, folder: str) -> bool:
        """The same for a file in the folder, or below."""
        inside = self.tree.target(folder)
        return inside is not None and self._any_below(inside)

    def relative(self, names: Iterable[str]) -> list[str]:
        """The names from the working folder on, which a copy of it has too; others as they are."""
        root, here = os.path.join(self.tree.root, ""), os.path.realpath(os.curdir)
        real = (os.path.join(os.path.realpath(name), "") for name in names)
        return [
            os.path.relpath(path, here) if path.startswith(root) else path[:-1] for path in real
        ]

    @contextmanager
    def written_out(self, names: Collection[str], also: Collection[str]) -> Iterator[None]:
        """Work in a copy of the folders that have a file called as one of `names`.

        The files `also` are copied with them. If the next commit changes nothing in all of these,
        nothing is copied. Raises GitError.
        """
        marked = {os.path.dirname(path) for path in self.tree.entries if _base(path) in names}
        others = {self.tree.target(name) for name in also}
        if others.isdisjoint(self._differing) and not any(map(self._any_below, marked)):
            marked = set()
        paths = [
            path
            for path in self.tree.entries
            if path in others or not marked.isdisjoint(_folders_of(path))
        ]
        with written_out(self.tree, paths):
            yield

    def _any_below(self, path: str) -> bool:
        prefix = f"{path}/" if path else ""
        return any(path.startswith(prefix) for path in self._differing)

    @cached_property
    def _differing(self) -> set[str]:
        """The paths that the next commit would add, change or remove."""
        gone = self._before.keys() - self.tree.entries.keys()
        return changed_paths(self.tree, self._before) | gone


@contextmanager
def staged_files() -> Iterator[StagedFiles]:
    """What is staged. Raises GitError outside of a repository with a work tree."""
    root = git_line("rev-parse", "--show-toplevel")
    with Blobs() as blobs:
        before = commit_entries("HEAD") if _has_commits() else {}
        yield StagedFiles(GitTree(root, index_entries(), blobs), before)


def _has_commits() -> bool:
    try:
        git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitError:
        return False
    return True


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _folders_of(path: str) -> Iterator[str]:
    """Every folder that the path is in, from the root of the repository on; the root is empty."""
    while path:
        path = path.rpartition("/")[0]
        yield path
