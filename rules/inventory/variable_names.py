"""Which variables of a ConfigMap an inventory keeps."""

from __future__ import annotations

from collections.abc import Iterable

from rules.base.words import matches_any

MAX_VARIABLES = 20
"""Of a ConfigMap, whose tenant may choose any number of names for some patterns."""


class VariableNames:
    """The variables that container runtimes read, as names and patterns of names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._exact = frozenset(name for name in self._patterns if "*" not in name)

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are read, at most MAX_VARIABLES: first what no pattern stands for.

        What a pattern stands for is read by few nodes only, and a tenant may choose its name.
        """
        found = [name for name in names if matches_any(self._patterns, name)]
        return sorted(found, key=lambda name: name not in self._exact)[:MAX_VARIABLES]
