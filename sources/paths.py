"""Find what is at the paths that a user names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from sources import STANDARD_INPUT
from sources.containment import relative_path_inside
from sources.sources import (
    Input,
    InputFile,
    SkippedSource,
    StandardInput,
    UnreadableSource,
    UsageError,
    may_hold_manifests,
)
from terminal import reason_of

# Folders in which tools keep what they make or download, by their names: users do not apply it, and
# it can be large. Other folders with a dot are read: `kubectl apply -R` reads all of them.
_TOOL_FOLDERS = frozenset(
    {
        *(".venv", ".tox", ".nox", ".eggs", ".direnv", ".pixi", ".conda", ".bundle"),
        *(".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
        *(".ipynb_checkpoints", ".terraform", ".terragrunt-cache", ".kube", ".vagrant"),
        *(".idea", ".vscode", ".gradle", ".m2", ".cargo", ".rustup"),
        *(".npm", ".yarn", ".pnpm-store", ".parcel-cache", ".turbo", ".next", ".nuxt"),
    }
)
# Those of version control. Every repository has one, so no report names them.
_VERSION_CONTROL_FOLDERS = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
TOOL_FOLDER_REASON = "a folder of a tool: name it to lint it"


def is_tool_folder(name: str) -> bool:
    """Return whether a tool keeps its own files in a folder called `name`.

    Such a folder is not entered.
    """
    return name in _TOOL_FOLDERS or name in _VERSION_CONTROL_FOLDERS


def tool_folder_of(path: str) -> str:
    """The outermost folder of a tool on the relative `path` to a file; empty if there is none."""
    parts = path.split("/")[:-1]
    found = next((n for n, part in enumerate(parts, 1) if is_tool_folder(part)), 0)
    return "/".join(parts[:found])


class Exclusion:
    """The exclusions of a run from folders and globs: what fits a pattern, and what Git ignores."""

    def __init__(
        self,
        patterns: Iterable[str] = (),
        ignored_paths: Callable[[str], frozenset[str]] | None = None,
        of_policy: tuple[str, tuple[str, ...]] = ("", ()),
    ) -> None:
        """`ignored_paths` asks Git about a folder that is in a repository.

        `of_policy` are a folder, and patterns for what is in it.
        """
        self._patterns = tuple(patterns)
        self._policy_folder, self._policy_patterns = of_policy
        self._here = os.getcwd() if self._policy_patterns else ""
        self._ignored_paths = ignored_paths
        self._ignored: dict[str, frozenset[str]] = {}
        self.notes: dict[str, None] = {}
        """Notes about it for the user, each text once."""

    def excludes(self, name: str) -> bool:
        """Return whether a pattern fits the file `name`."""
        if any(is_excluded(name, pattern) for pattern in self._patterns):
            return True
        if not self._policy_patterns:
            return False
        path = os.path.normpath(os.path.join(self._here, name))
        inside = relative_path_inside(path, self._policy_folder)
        return inside is not None and any(
            is_excluded(inside, pattern) for pattern in self._policy_patterns
        )

    def ignored_in(self, folder: str) -> frozenset[str]:
        """The files and folders below `folder` that Git ignores, as `os.walk` names them.

        None are if Git ignores `folder` itself: then the user has named it in spite of that.
        """
        if not self._ignored_paths or not _is_in_repository(folder):
            return frozenset()
        if folder not in self._ignored:
            try:
                self._ignored[folder] = self._ignored_paths(folder)
            except UsageError as error:
                self.notes[f"cannot say what Git ignores, so nothing is left out: {error}"] = None
                self._ignored[folder] = frozenset()
        return self._ignored[folder]

    @property
    def has_ignored(self) -> bool:
        """Return whether Git ignores something in the folders that were looked at."""
        return any(self._ignored.values())


def _is_in_repository(folder: str) -> bool:
    place = os.path.realpath(folder)
    # In a worktree or a submodule, `.git` is a file.
    while not any(os.path.isfile(os.path.join(place, name)) for name in (".git", ".git/HEAD")):
        above = os.path.dirname(place)
        if above == place:
            return False
        place = above
    return True


EXCLUDE_NOTHING = Exclusion()
"""Leaves nothing out."""


def inputs(
    paths: Iterable[str],
    exclude: Exclusion = EXCLUDE_NOTHING,
    stdin_name: str = STANDARD_INPUT,
    read_stdin: Callable[[int], bytes] | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> Iterator[Input]:
    """Yield the inputs at `paths`: files, folders, globs, and `-` for standard input.

    A folder gives every YAML and JSON file in it, folders of tools excepted, but for what `exclude`
    leaves out. Standard input gets the name `stdin_name`; `read_stdin` reads so many bytes of it.
    `is_wanted` says which of the files are read; all without it. Raises UsageError for a path that
    does not exist.
    """
    places = FilePlaces()
    for path in paths:
        if path == "-":
            yield StandardInput(stdin_name, read_stdin or sys.stdin.buffer.read)
            continue
        for name in files_at(path, exclude):
            if isinstance(name, SkippedSource | UnreadableSource):
                yield name
            elif places.add(name) and (is_wanted is None or is_wanted(name)):
                yield InputFile(name, path)


class FilePlaces:
    """The files of a run, each once, whatever the user calls it. A link is another file."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._real_folder = cache(os.path.realpath)

    def add(self, name: str) -> bool:
        """Add the file called `name`; whether it is a new one."""
        folder, base = os.path.split(name)
        place = os.path.join(self._real_folder(folder or "."), base)
        is_new = place not in self._seen
        self._seen.add(place)
        return is_new


def is_excluded(name: str, pattern: str) -> bool:
    """Return whether `pattern` fits the file, a folder that it is in, or the name of either."""
    from fnmatch import fnmatch  # noqa: PLC0415  # few runs exclude files

    while name and name != os.path.dirname(name):
        if fnmatch(name, pattern) or fnmatch(os.path.basename(name), pattern):
            return True
        name = os.path.dirname(name)
    return False


def files_at(
    path: str, exclude: Exclusion = EXCLUDE_NOTHING
) -> Iterator[str | SkippedSource | UnreadableSource]:
    """The names of the files at `path`: a file, or all in a folder or that fit a glob."""
    if os.path.isdir(path):
        yield from _files_in_folder(path, exclude)
    elif os.path.lexists(path):
        if not exclude.excludes(path):
            yield path
    else:
        import glob  # noqa: PLC0415  # most users name files and folders

        found = sorted(glob.glob(path, recursive=True))
        if not path:
            raise UsageError("a path is empty: give a file or folder, or - for standard input")
        if not found:
            hint = ": an option and its value are two arguments" if path.startswith("--") else ""
            raise UsageError(f"{path} does not exist{hint}")
        parts = path.split(os.sep)
        fixed = next(n for n, part in enumerate(parts) if glob.has_magic(part))
        ignored = exclude.ignored_in(os.sep.join(parts[:fixed]) or (os.sep if fixed else "."))
        for name in found:
            if not _is_within_any(name, ignored):
                yield from files_at(name, exclude)


def _is_within_any(name: str, places: frozenset[str]) -> bool:
    """Return whether `name`, or a folder that it is in, is one of `places`."""
    name = os.path.normpath(name)
    while name not in places:
        above = os.path.dirname(name)
        if above == name or not above:
            return False
        name = above
    return True


def _files_in_folder(
    folder: str, exclude: Exclusion
) -> Iterator[str | SkippedSource | UnreadableSource]:
    closed: list[OSError] = []
    for here, folders, files in walk(folder, exclude, closed.append):
        for name in folders:
            place = os.path.join(here, name)
            if name in _VERSION_CONTROL_FOLDERS or exclude.excludes(place):
                continue
            if is_tool_folder(name):
                yield SkippedSource(os.path.normpath(place), TOOL_FOLDER_REASON)
            elif os.path.islink(place):
                yield SkippedSource(
                    os.path.normpath(place), "a link to a folder: name it to lint it"
                )
        folders[:] = (name for name in folders if not is_tool_folder(name))
        for name in files:
            if may_hold_manifests(name):
                path = os.path.normpath(os.path.join(here, name))
                if not exclude.excludes(path):
                    yield path
    for error in closed:
        place = os.path.normpath(str(error.filename))
        yield UnreadableSource(place, reason_of(error))


def walk(
    folder: str, exclude: Exclusion, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder in `folder`, with the folders and files in it, sorted, as `os.walk` does.

    What Git ignores is left out. The caller may remove folders, which are then not entered.
    """
    ignored = exclude.ignored_in(folder)
    for here, folders, files in os.walk(folder, onerror=on_error):
        folders.sort()
        files.sort()
        if ignored:
            folders[:] = _names_not_in(folders, here, ignored)
            files[:] = _names_not_in(files, here, ignored)
        yield here, folders, files


def _names_not_in(names: Iterable[str], here: str, places: frozenset[str]) -> list[str]:
    return [name for name in names if os.path.normpath(os.path.join(here, name)) not in places]
