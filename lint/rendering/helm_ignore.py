"""Which files of a chart helm leaves out, as the chart's `.helmignore` says.

This explains why a file is in no rendering; what helm renders is up to helm.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase

from lint.file_trees import DISK

_FILE = ".helmignore"
_HIDDEN = "templates/.?*"  # which helm ignores in every chart
_MAX_BYTES = 64 * 1024


def ignored_by_helm(chart: str) -> Callable[[str], bool]:
    """Whether helm leaves out a file of the folder `chart`, by its path in it."""
    try:
        text = DISK.read(os.path.join(chart, _FILE), _MAX_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    lines = (line.strip() for line in (*text.splitlines(), _HIDDEN))
    patterns = [line.replace("[^", "[!") for line in lines if line and not line.startswith("#")]

    def is_ignored(path: str) -> bool:
        parts = path.split("/")
        return any(
            _is_named(parts[: end + 1], patterns, is_folder=end + 1 < len(parts))
            for end in range(len(parts))
        )

    return is_ignored


def _is_named(parts: list[str], patterns: list[str], *, is_folder: bool) -> bool:
    """Whether a pattern names the file or folder: the first one that decides does, as in helm."""
    for pattern in patterns:
        rule = pattern.removeprefix("!")
        fits = (is_folder or not rule.endswith("/")) and _fits(rule.removesuffix("/"), parts)
        if fits != pattern.startswith("!"):
            return True
    return False


def _fits(rule: str, parts: list[str]) -> bool:
    """Whether `rule` fits a path; without a slash in it, the name at its end."""
    if "/" not in rule:
        return fnmatchcase(parts[-1], rule)
    wanted = rule.removeprefix("/").split("/")
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))
