"""The kinds of files that are no manifests, and where they are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from sources.paths import Exclusion, FilePlaces, is_tool_folder, walk
from sources.sources import TEMPLATE_ENDINGS, InputFile, UsageError

DOCKERFILE, COMPOSE, SHELL, MARKDOWN = CONTAINER_FILE_KINDS = (
    "dockerfile",
    "compose",
    "shell",
    "markdown",
)
_TEMPLATE_PATTERN = rf"(\.({'|'.join(TEMPLATE_ENDINGS)}))?"
_QUADLET_PATTERN = re.compile(r".+\.container" + _TEMPLATE_PATTERN)
_FILE_NAME_PATTERN_BY_KIND = {
    DOCKERFILE: re.compile(r"(.+[._-])?(dockerfile|containerfile)([._-](?!dockerignore$).+)?"),
    COMPOSE: re.compile(rf"(.+[.-])?compose([.-].+)?\.ya?ml{_TEMPLATE_PATTERN}"),
    SHELL: re.compile(
        r"(.+\.(sh|bash|zsh|ksh|mk|service|container)|(gnu)?makefile|justfile|jenkinsfile|taskfile\.ya?ml"
        r"|(azure|bitbucket)-pipelines\.ya?ml|cloudbuild\.ya?ml|\.(gitlab-ci|travis|drone)\.ya?ml)"
        + _TEMPLATE_PATTERN
    ),
    MARKDOWN: re.compile(r".+\.(md|mdx|markdown)"),
}
# Of a file that others extend, the services have no image.
_SERVICES_PATTERN = r"(?m)^services:[ \t]*(?:#.*)?$"
_MAX_COMPOSE_CHARACTERS = 1 << 18
_CI_FOLDERS = (".github/workflows", ".github/actions", ".circleci", ".gitlab", ".buildkite")


def container_file_kind(name: str) -> str:
    """The kind of the file called `name`, empty for every other file."""
    base = os.path.basename(name).lower()
    kinds = (
        kind for kind, pattern in _FILE_NAME_PATTERN_BY_KIND.items() if pattern.fullmatch(base)
    )
    return next(kinds, SHELL if is_ci_file(name) else "")


def is_ci_file(name: str) -> bool:
    """Return whether the file is YAML that a CI system reads."""
    folder = os.path.dirname(os.path.abspath(name)).replace(os.sep, "/") + "/"
    base = os.path.basename(name).lower()
    is_in_folder = any(f"/{known}/" in folder for known in _CI_FOLDERS)
    is_known = is_in_folder or _FILE_NAME_PATTERN_BY_KIND[SHELL].fullmatch(base) is not None
    return is_known and base.endswith((".yaml", ".yml"))


def is_quadlet(name: str) -> bool:
    """Return whether the file is a unit of Podman's Quadlet that describes a container."""
    return _QUADLET_PATTERN.fullmatch(os.path.basename(name).lower()) is not None


class ContainerFiles:
    """The files of some kinds at the paths of a run, which are no manifests."""

    def __init__(self, kinds: str) -> None:
        """`kinds` are words with commas. Raises UsageError for one that is unknown."""
        self._kinds = set(kinds.split(","))
        if unknown := sorted(self._kinds.difference(CONTAINER_FILE_KINDS)):
            raise UsageError(
                f"--also {unknown[0]}: the kinds are {', '.join(CONTAINER_FILE_KINDS)}"
            )

    def __contains__(self, name: str) -> bool:
        """Return whether the file called `name` is of one of the kinds, by its name."""
        return container_file_kind(name) in self._kinds

    def find_files(
        self,
        paths: Iterable[str],
        exclude: Exclusion,
        is_wanted: Callable[[str], bool] | None = None,
    ) -> Iterator[InputFile]:
        """The files at `paths`, each once; none of the folders in which tools keep theirs.

        A compose file may have any name, as in `docker compose -f plex.yml`. What only looks like
        one may have manifests, too.
        """
        places = FilePlaces()
        for path in paths:
            for name in _files(path, exclude) if os.path.isdir(path) else [path]:
                if is_wanted and not is_wanted(name):
                    continue
                if name not in self and not self._is_compose_of_other_name(name):
                    continue
                if not exclude.excludes(name) and places.add(name):
                    yield InputFile(name, path)

    def _is_compose_of_other_name(self, name: str) -> bool:
        """Return whether a file of no kind by its name has services as compose has them."""
        if COMPOSE not in self._kinds or container_file_kind(name):
            return False
        is_yaml = name.lower().endswith((".yaml", ".yml"))
        # A named pipe would hold the run up.
        return is_yaml and os.path.isfile(name) and _has_services(name)


def _has_services(name: str) -> bool:
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_COMPOSE_CHARACTERS)
    except OSError:
        return False
    return re.search(_SERVICES_PATTERN, text) is not None


def _files(root: str, exclude: Exclusion) -> Iterator[str]:
    for here, folders, files in walk(root, exclude):
        folders[:] = (name for name in folders if not is_tool_folder(name))
        for name in files:
            yield os.path.normpath(os.path.join(here, name))
