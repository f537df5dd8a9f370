"""Changed files of a Git tree, as inputs of the linter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from lint.git.trees import LINK, SUBMODULE, Entry, GitTree
from lint.inputs import is_excluded
from lint.sources import (
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

    So are links if a link or file on their way has changed, and changed submodules. The names are
    relative to the working folder; those that fit a pattern of `exclude` are left out.
    """
    changed = {path for path, entry in tree.entries.items() if entry != before.get(path)}
    submodules = {path for path in changed if tree.entries[path].mode == SUBMODULE}
    for path in sorted({*filter(_is_manifest, tree.entries), *submodules}):
        place = os.path.join(tree.root, path)
        if path in changed or (tree.is_link(place) and not changed.isdisjoint(tree.way(place))):
            name = os.path.relpath(place)
            if not any(is_excluded(name, pattern) for pattern in exclude):
                yield _source(tree, path, name)


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
