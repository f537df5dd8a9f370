"""Which files differ from a revision: `gpuward lint --changed-since`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache, cached_property

from sources.git.command import GitError, git, git_line, git_records
from sources.sources import UsageError

_DIFF = (
    *("diff", "--name-only", "-z", "--no-renames", "--no-relative"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
)
# `git diff` may write the index, to note that a touched file is the same; then a hook runs.
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
_MAX_LINKS = 40  # as Linux follows
_UNTRACKED = ("ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", ":/")


class ChangedFiles:
    """The files that differ from the commit `base`, in the repository at `root`."""

    def __init__(self, root: str, base: str) -> None:
        self._root = root
        self._base = base
        self._changed = {
            *self._paths(_differing(base, "d")),
            *self._paths(git_records(*_UNTRACKED)),
        }
        self._way_to_folder = cache(_way)

    def has(self, name: str) -> bool:
        """Whether the file differs, or a link on the way to it, or the submodule it is in."""
        folder, base = os.path.split(name)
        *links, real_folder = self._way_to_folder(folder)
        place = os.path.join(real_folder, base)
        way = [*links, *(_way(place) if os.path.islink(place) else [place])]
        changed = self._changed
        return not changed.isdisjoint(way) or not changed.isdisjoint(_folders_above(way[-1]))

    def any_in(self, folder: str) -> bool:
        """Whether a file in the folder, or below, differs or is gone."""
        inside = os.path.join(os.path.realpath(folder), "")
        if any(path.startswith(inside) for path in self._gone):
            return True
        files = (os.path.join(here, name) for here, _, names in os.walk(folder) for name in names)
        return any(map(self.has, files))

    @cached_property
    def _gone(self) -> set[str]:
        return set(self._paths(_differing(self._base, "D")))

    def _paths(self, names: Iterable[bytes]) -> Iterator[str]:
        return (os.path.join(self._root, os.fsdecode(name).rstrip("/")) for name in names)


def changed_since(revision: str, paths: Iterable[str]) -> ChangedFiles:
    """The files that differ from where the history of HEAD left `revision`.

    This includes what is not committed, files that git neither tracks nor ignores, all files of a
    submodule whose commit differs, and links if a link or file on their way does.

    Raises UsageError outside of a repository, for a revision that does not exist, and for one of
    `paths` that is not in the repository.
    """
    option = f"--changed-since {revision}"
    try:
        root = git_line("rev-parse", "--show-toplevel")
    except GitError as error:
        raise UsageError(f"{option}: {error}") from error
    for path in paths:
        if path != "-" and os.path.commonpath((os.path.realpath(path), root)) != root:
            raise UsageError(f"{option}: {path} is outside of the repository {root}")
    return ChangedFiles(root, _merge_base(revision, option))


def _way(path: str) -> list[str]:
    """The absolute path of each link on the way to `path`, and what they lead to, without links."""
    links: list[str] = []
    place, rest = os.sep, _parts(os.path.join(os.getcwd(), path))
    while rest:
        place = os.path.normpath(os.path.join(place, rest.pop()))
        if os.path.islink(place):
            if len(links) == _MAX_LINKS:
                break
            links.append(place)
            rest += _parts(os.readlink(place))
            place = os.path.dirname(place)
    return [*links, place]


def _parts(path: str) -> list[str]:
    """The parts of `path`, the last one first; an absolute path begins with the root."""
    root = [os.sep] if path.startswith(os.sep) else []
    return [*filter(None, reversed(path.split(os.sep))), *root]


def _folders_above(path: str) -> Iterator[str]:
    """The folders that `path` is in, one of which may be a submodule."""
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _differing(base: str, kinds: str) -> Iterator[bytes]:
    """The files that differ from `base`, of these `kinds` in the words of `--diff-filter`."""
    chosen = (f"--diff-filter={kinds}", base, "--")
    return git_records(*_NO_HOOKS, *_without_filters(), *_DIFF, *chosen)


def _merge_base(revision: str, option: str) -> str:
    try:
        commit = git_line("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except GitError as error:
        why = "there is no such commit; in CI, fetch the branch first"
        raise UsageError(f"{option}: {why} ({error})") from error
    try:
        return git_line("merge-base", commit, "HEAD")
    except GitError as error:
        why = "it has no common ancestor with HEAD; in a shallow clone, fetch more history"
        raise UsageError(f"{option}: {why}") from error


def _without_filters() -> Iterator[str]:
    """Options that turn off each filter of the configuration.

    To compare a file of the work tree, git runs the filters that `.gitattributes` names.
    """
    for key in git("config", "--null", "--name-only", "--list").split(b"\0"):
        name, _, field = os.fsdecode(key).rpartition(".")
        if not name.startswith("filter."):
            continue
        if "=" in name:
            raise GitError(f"the filter {name!r} of the configuration cannot be turned off")
        yield from ("-c", f"{name}.{field}={'false' if field == 'required' else ''}")
