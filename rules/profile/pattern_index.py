"""Look facts up by a name that may fit a pattern."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from rules.base.caching import BoundedCache
from rules.base.words import matches

T = TypeVar("T")


class PatternIndex(Generic[T]):
    """Facts by name or pattern. An exact name wins over patterns, an earlier pattern over later."""

    def __init__(self, facts: Mapping[str, T]) -> None:
        self._found: _Found[T] = _Found(facts)

    def find(self, name: str) -> T | None:
        """The fact about `name`, or None."""
        return self._found[name]

    def find_all(self, names: Collection[str]) -> dict[str, T]:
        """The facts about those of `names` that have one, in the same order.

        It takes a fraction of the time of `find` for each, if all names were met before.
        """
        facts = map(self._found.__getitem__, names)
        return {name: fact for name, fact in zip(names, facts, strict=True) if fact is not None}


class _Found(BoundedCache[str, T | None]):
    """What was found by the names that were met, of which tenants choose most."""

    def __init__(self, facts: Mapping[str, T]) -> None:
        super().__init__()
        self._facts = facts
        self._patterns = [(name, fact) for name, fact in facts.items() if "*" in name]
        # One comparison with all of them tells most other names apart.
        self._beginnings = tuple({pattern.partition("*")[0] for pattern, _ in self._patterns})

    def __missing__(self, name: str) -> T | None:
        """The fact about a new `name`."""
        fact = self._facts.get(name)
        if fact is None and name.startswith(self._beginnings):
            fact = next((fact for pattern, fact in self._patterns if matches(pattern, name)), None)
        return self.store(name, fact)
