"""Changed files of a Git tree, as inputs of the linter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from sources.git.trees import LINK, SUBMODULE, Entry, GitTree
from sources.paths import is_excluded
from sources.sources import (
    ENDINGS,
    KUSTOMIZATIONS,
    MAX_BYTES,
    SkippedSource,
    Source,
    UnreadableSource,
    source_of,
)


def changed_sources(
    tree: GitTree, before: Mapping[str, Entry], exclude: Collection[str] = ()
) -> Iterator[Source | SkippedSource | UnreadableSource]:
    """The manifests of `tree` that `before`, which has entries by path, does not have like this.

    So are changed submodules. The names are relative to the working folder; those that fit a
    pattern of `exclude` are left out.
    """
    for path in sorted(changed_paths(tree, before)):
        if _is_manifest(path) or tree.entries[path].mode == SUBMODULE:
            name = os.path.relpath(os.path.join(tree.root, path))
            if not any(is_excluded(name, pattern) for pattern in exclude):
                yield _source(tree, path, name)


def changed_paths(tree: GitTree, before: Mapping[str, Entry]) -> set[str]:
    """The paths of `tree` that `before` does not have like this.

    So are links if a link or file on their way has changed.
    """
    changed = {path for path, entry in tree.entries.items() if entry != before.get(path)}
    links = (path for path, entry in tree.entries.items() if entry.mode == LINK)
    ways = {path: tree.way(os.path.join(tree.root, path)) for path in links}
    return changed | {path for path, way in ways.items() if not changed.isdisjoint(way)}


def _is_manifest(path: str) -> bool:
    return path.lower().endswith(ENDINGS) or os.path.basename(path) in KUSTOMIZATIONS


def _source(tree: GitTree, path: str, name: str) -> Source | SkippedSource | UnreadableSource:
    entry = tree.entries[path]
    if entry.mode == SUBMODULE:
        return SkippedSource(name, "a submodule: lint it in its own repository")
    if entry.is_conflict:
        return UnreadableSource(name, "a merge conflict that is not resolved")
    if entry.mode == LINK and not tree.is_file(name):
        return UnreadableSource(name, "a link that leads to no file of the repository")
    try:
        content = tree.read(name, MAX_BYTES + 1)
    except OSError as error:
        return UnreadableSource(name, (error.strerror or str(error)).lower())
    return source_of(name, content, tree)
