"""The files that differ from a revision or are staged, as inputs of the linter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property

from sources.containment import is_inside, root_and_parts
from sources.git.command import GitError, git, git_line, git_records, repository_root
from sources.git.trees import (
    LINK_MODE,
    SUBMODULE_MODE,
    BlobReader,
    GitTree,
    TreeEntry,
    commit_entries,
    index_entries,
    working_copy,
)
from sources.paths import EXCLUDE_NOTHING, TOOL_FOLDER_REASON, Exclusion, tool_folder_of
from sources.sources import (
    MAX_BYTES,
    SkippedSource,
    Source,
    UnreadableSource,
    UsageError,
    may_hold_manifests,
    source_of,
)
from terminal import reason_of

# Which files differ from a revision: `gpuward lint --changed-since`.

_DIFF_COMMAND = (
    *("diff", "--name-only", "-z", "--no-renames", "--no-relative"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
)
# `git diff` may write the index, to note that a touched file is the same; then a hook runs.
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
_MAX_LINKS = 40  # as Linux follows
_LIST_UNTRACKED_COMMAND = (
    "ls-files",
    "-z",
    "--others",
    "--exclude-standard",
    "--full-name",
    "--",
    ":/",
)


class ChangedFiles:
    """The files that differ from the commit `base`, in the repository at `root`."""

    def __init__(self, root: str, base: str) -> None:
        self._root = root
        self._base = base
        self._changed = {
            *self._paths(_files_differing_from(base, "d")),
            *self._paths(git_records(*_LIST_UNTRACKED_COMMAND)),
        }
        self._way_to_folder = cache(_links_on_the_way)

    def is_changed(self, name: str) -> bool:
        """Return whether the file, a link on the way to it, or the submodule it is in differs."""
        folder, base = os.path.split(name)
        *links, real_folder = self._way_to_folder(folder)
        place = os.path.join(real_folder, base)
        way = [*links, *(_links_on_the_way(place) if os.path.islink(place) else [place])]
        changed = self._changed
        return not changed.isdisjoint(way) or not changed.isdisjoint(_folders_above(way[-1]))

    def has_changes_in(self, folder: str) -> bool:
        """Return whether a file in the folder, or below, differs or is gone."""
        inside = os.path.join(os.path.realpath(folder), "")
        if any(path.startswith(inside) for path in self._deleted_files):
            return True
        files = (os.path.join(here, name) for here, _, names in os.walk(folder) for name in names)
        return any(map(self.is_changed, files))

    @cached_property
    def _deleted_files(self) -> set[str]:
        return set(self._paths(_files_differing_from(self._base, "D")))

    def _paths(self, names: Iterable[bytes]) -> Iterator[str]:
        places = (os.path.join(self._root, os.fsdecode(name).rstrip("/")) for name in names)
        return map(os.path.normpath, places)


def changed_since(revision: str, paths: Iterable[str]) -> ChangedFiles:
    """The files that differ from where the history of HEAD left `revision`.

    This includes what is not committed, files that git neither tracks nor ignores, all files of a
    submodule whose commit differs, and links if a link or file on their way does.

    Raises UsageError outside of a repository, for a revision that does not exist, and for one of
    `paths` that is not in the repository.
    """
    option = f"--changed-since {revision}"
    try:
        root = repository_root()
    except GitError as error:
        raise UsageError(f"{option}: {error}") from error
    for path in paths:
        if path != "-" and not is_inside(os.path.realpath(path), root):
            raise UsageError(f"{option}: {path} is outside of the repository {root}")
    return ChangedFiles(root, _merge_base(revision, option))


def _links_on_the_way(path: str) -> list[str]:
    """The absolute path of each link on the way to `path`, and what they lead to, without links."""
    links: list[str] = []
    place, rest = root_and_parts(os.path.join(os.getcwd(), path))
    rest.reverse()
    while rest:
        place = os.path.normpath(os.path.join(place, rest.pop()))
        if os.path.islink(place):
            if len(links) == _MAX_LINKS:
                break
            links.append(place)
            root, following = root_and_parts(os.readlink(place))
            rest += reversed(following)
            place = root or os.path.dirname(place)
    return [*links, place]


def _folders_above(path: str) -> Iterator[str]:
    """The folders that `path` is in, one of which may be a submodule."""
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _files_differing_from(base: str, kinds: str) -> Iterator[bytes]:
    """The files that differ from `base`, of these `kinds` in the words of `--diff-filter`."""
    chosen = (f"--diff-filter={kinds}", base, "--")
    return git_records(*_NO_HOOKS, *_without_filters(), *_DIFF_COMMAND, *chosen)


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


def changed_sources(
    tree: GitTree,
    before: Mapping[str, TreeEntry],
    exclude: Exclusion = EXCLUDE_NOTHING,
    named: Collection[str] | None = None,
) -> Iterator[Source | SkippedSource | UnreadableSource]:
    """The manifests of `tree` that are new or differ from `before`, and changed submodules.

    `before` has the earlier entries by path. The names of the sources are relative to the working
    folder; those that `exclude` leaves out are not among them. With `named`, the folders of tools
    are left out, but for those in which one of the folders `named` is.
    """
    skipped = set()
    for path in sorted(changed_paths(tree, before)):
        if may_hold_manifests(path) or tree.entries[path].mode == SUBMODULE_MODE:
            name = os.path.relpath(os.path.join(tree.root, path))
            if exclude.excludes(name):
                continue
            folder = "" if named is None else tool_folder_of(path)
            place = os.path.join(tree.root, folder)
            if not folder or any(is_inside(each, place) for each in named or ()):
                yield _source(tree, path, name)
            elif folder not in skipped:
                skipped.add(folder)
                yield SkippedSource(os.path.relpath(place), TOOL_FOLDER_REASON)


def changed_paths(tree: GitTree, before: Mapping[str, TreeEntry]) -> set[str]:
    """The paths of `tree` that are new or differ from `before`.

    A link counts as changed too if a link on the way to its file, or the file, has changed.
    """
    changed = {path for path, entry in tree.entries.items() if entry != before.get(path)}
    links = (path for path, entry in tree.entries.items() if entry.mode == LINK_MODE)
    ways = {path: tree.links_and_file(os.path.join(tree.root, path)) for path in links}
    return changed | {path for path, way in ways.items() if not changed.isdisjoint(way)}


def _source(tree: GitTree, path: str, name: str) -> Source | SkippedSource | UnreadableSource:
    entry = tree.entries[path]
    if entry.mode == SUBMODULE_MODE:
        return SkippedSource(name, "a submodule: lint it in its own repository")
    if entry.is_conflict:
        return UnreadableSource(name, "a merge conflict that is not resolved")
    if entry.mode == LINK_MODE and not tree.is_file(name):
        return UnreadableSource(name, "a link that leads to no file of the repository")
    try:
        content = tree.read(name, MAX_BYTES + 1)
    except OSError as error:
        return UnreadableSource(name, reason_of(error))
    return source_of(name, content, tree)


def is_as_staged(name: str) -> bool:
    """Return whether git takes the file on disk for what is staged.

    Line breaks that git converts make no difference. No filter runs, so a file with a filter never
    counts as staged. Raises GitError.
    """
    arguments = (*_NO_HOOKS, *_without_filters(), *_DIFF_COMMAND, "--", f":(literal){name}")
    return next(git_records(*arguments), None) is None


# What the next commit would have: `gpuward lint --staged`.


class StagedFiles:
    """The staged content of the repository around the working folder.

    `tree` has the entries of the index, `before` those of the last commit.
    """

    def __init__(self, tree: GitTree, before: Mapping[str, TreeEntry]) -> None:
        self.tree = tree
        self._before = before

    def sources(
        self, paths: Collection[str], exclude: Exclusion
    ) -> Iterator[Source | SkippedSource | UnreadableSource]:
        """The manifests that the next commit would add or change, with their staged contents.

        `paths`, if not empty, are the files and folders that count. Raises UsageError for one
        outside of the repository.
        """
        root = self.tree.root
        folders = [os.path.realpath(path) for path in paths]
        for path, folder in zip(paths, folders, strict=True):
            if path == "-" or not is_inside(folder, root):
                raise UsageError(f"{path} is outside of the repository, so nothing in it is staged")
        for source in changed_sources(self.tree, self._before, exclude, folders):
            place = os.path.abspath(source.name)
            if not folders or any(is_inside(place, folder) for folder in folders):
                yield source

    def is_changed(self, name: str) -> bool:
        """Return whether the next commit would add, change or remove the file."""
        return self.tree.path_without_links(name) in self._paths_to_commit

    def has_changes_in(self, folder: str) -> bool:
        """Return whether the next commit changes, adds or removes a file in or below the folder."""
        inside = self.tree.path_without_links(folder)
        return inside is not None and self._any_below(inside)

    def relative_names(self, names: Iterable[str]) -> list[str]:
        """The names from the working folder on, which a copy of it has too; others as they are."""
        root, here = self.tree.root, os.path.realpath(os.curdir)
        real = map(os.path.realpath, names)
        return [os.path.relpath(path, here) if is_inside(path, root) else path for path in real]

    @contextmanager
    def working_copy(self, names: Collection[str], also: Collection[str]) -> Iterator[None]:
        """Work in a copy of the folders that contain a file with one of these `names`.

        The files `also` are copied with them. If the next commit changes nothing in all of these,
        nothing is copied. Raises GitError.
        """
        marked = {os.path.dirname(path) for path in self.tree.entries if _file_name(path) in names}
        others = {self.tree.path_without_links(name) for name in also}
        if others.isdisjoint(self._paths_to_commit) and not any(map(self._any_below, marked)):
            marked = set()
        paths = [
            path
            for path in self.tree.entries
            if path in others or not marked.isdisjoint(_folders_containing(path))
        ]
        with working_copy(self.tree, paths):
            yield

    def _any_below(self, path: str) -> bool:
        prefix = f"{path}/" if path else ""
        return any(path.startswith(prefix) for path in self._paths_to_commit)

    @cached_property
    def _paths_to_commit(self) -> set[str]:
        """The paths that the next commit would add, change or remove."""
        gone = self._before.keys() - self.tree.entries.keys()
        return changed_paths(self.tree, self._before) | gone


@contextmanager
def staged_files() -> Iterator[StagedFiles]:
    """Yield the staged files. Raises GitError outside of a repository with a work tree."""
    root = repository_root()
    with BlobReader() as blobs:
        before = commit_entries("HEAD") if _has_commits() else {}
        yield StagedFiles(GitTree(root, index_entries(), blobs), before)


def _has_commits() -> bool:
    try:
        git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitError:
        return False
    return True


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _folders_containing(path: str) -> Iterator[str]:
    """Every folder that the path is in, from the root of the repository on; the root is empty."""
    while path:
        path = path.rpartition("/")[0]
        yield path
