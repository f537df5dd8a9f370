"""Which files are Dockerfiles, compose files and scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator

from sources.paths import is_excluded
from sources.sources import UnreadFile, UsageError

DOCKERFILE, COMPOSE, SHELL = KINDS = ("dockerfile", "compose", "shell")
_PATTERNS = {
    DOCKERFILE: re.compile(r"(.+[.-])?(dockerfile|containerfile)([.-](?!dockerignore$).+)?"),
    COMPOSE: re.compile(r"(.+[.-])?compose([.-].+)?\.ya?ml"),
    SHELL: re.compile(
        r".+\.(sh|bash|zsh|ksh|mk)|(gnu)?makefile|justfile|jenkinsfile|taskfile\.ya?ml"
        r"|(azure|bitbucket)-pipelines\.ya?ml|cloudbuild\.ya?ml|\.(gitlab-ci|travis|drone)\.ya?ml"
    ),
}
_CI_FOLDERS = (".github/workflows", ".github/actions", ".circleci", ".gitlab", ".buildkite")


def kind_of(name: str) -> str:
    """The kind of the file called `name`, empty for every other file."""
    base = os.path.basename(name).lower()
    kinds = (kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(base))
    return next(kinds, SHELL if is_ci_file(name) else "")


def is_ci_file(name: str) -> bool:
    """Whether the file is YAML that a CI system reads."""
    folder = os.path.dirname(os.path.abspath(name)).replace(os.sep, "/") + "/"
    base = os.path.basename(name).lower()
    is_in_folder = any(f"/{known}/" in folder for known in _CI_FOLDERS)
    is_known = is_in_folder or _PATTERNS[SHELL].fullmatch(base) is not None
    return is_known and base.endswith((".yaml", ".yml"))


class ContainerFiles:
    """The files of some kinds at the paths of a run, which are no manifests."""

    def __init__(self, kinds: str) -> None:
        """`kinds` are words with commas. Raises UsageError for one that is unknown."""
        self._kinds = set(kinds.split(","))
        if unknown := sorted(self._kinds.difference(KINDS)):
            raise UsageError(f"--also {unknown[0]}: the kinds are {', '.join(KINDS)}")

    def __contains__(self, name: str) -> bool:
        """Whether the file called `name` is of one of the kinds."""
        return kind_of(name) in self._kinds

    def find(
        self,
        paths: Iterable[str],
        exclude: Collection[str],
        is_wanted: Callable[[str], bool] | None = None,
    ) -> Iterator[UnreadFile]:
        """The files at `paths`, each once.

        Of hidden folders, only those of CI systems are looked into.
        """
        seen = set()
        for path in paths:
            for name in _files(path) if os.path.isdir(path) else [path]:
                if name in seen or name not in self or (is_wanted and not is_wanted(name)):
                    continue
                if not any(is_excluded(name, pattern) for pattern in exclude):
                    seen.add(name)
                    yield UnreadFile(name, path)


def _files(root: str) -> Iterator[str]:
    for here, folders, files in os.walk(root):
        inside = os.path.relpath(here, root).replace(os.sep, "/")
        folders[:] = sorted(name for name in folders if _is_visited(f"{inside}/{name}"))
        for name in sorted(files):
            yield os.path.normpath(os.path.join(here, name))


def _is_visited(folder: str) -> bool:
    """Whether the files in `folder`, or some below it, may be looked at."""
    parts = folder.removeprefix("./").split("/")
    hidden = next((i for i, part in enumerate(parts) if part.startswith(".")), None)
    if hidden is None:
        return True
    path = "/".join(parts[hidden:]) + "/"
    return any(path.startswith(f"{f}/") or f"{f}/".startswith(path) for f in _CI_FOLDERS)
