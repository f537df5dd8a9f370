"""Find the charts and the kustomizations in the paths that a user names."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from sources.paths import files_at, is_excluded
from sources.rendering.charts import CHART
from sources.sources import KUSTOMIZATIONS, UnreadFile


def find_charts(paths: Iterable[str], exclude: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The folder of each chart that is no part of another, and the path it was found at."""
    for root in paths:
        folders = {os.path.dirname(name) for name in _named(root, (CHART,), tuple(exclude))}
        for folder in sorted(folders):
            above, own = os.path.split(os.path.dirname(folder))
            if own != "charts" or above not in folders:
                base = root if os.path.isdir(root) else folder
                yield os.path.normpath(folder or "."), base


def find_kustomizations(paths: Iterable[str], exclude: Iterable[str]) -> Iterator[str]:
    """The files of all kustomizations."""
    for root in paths:
        yield from sorted(_named(root, KUSTOMIZATIONS, tuple(exclude)))


def _named(path: str, wanted: Collection[str], exclude: tuple[str, ...]) -> Iterator[str]:
    """The files called as one of `wanted`; the linter says of others why it does not read them."""
    for name in files_at(path) if path != "-" else ():
        if not isinstance(name, str) or os.path.basename(name) not in wanted:
            continue
        if UnreadFile(name, path).refusal() or not os.path.isfile(name):
            continue
        if not any(is_excluded(name, pattern) for pattern in exclude):
            yield name
