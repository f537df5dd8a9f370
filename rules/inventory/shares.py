"""Collect the objects whose pods ask for computing power of shared cards, by pool of nodes."""

from __future__ import annotations

from rules.inventory.records import SharePool

MOST = 1_000
"""Objects of all pools together. What comes later is not known."""


class ShareCollector:
    """Collects objects whose pods share cards, by the pool of nodes that the pods require.

    An object that is there in two forms, as in a repository with several environments, does not
    count: nobody knows which one runs beside the others.
    """

    def __init__(self) -> None:
        self._with_power: dict[str, set[str]] = {}
        self._without: dict[str, set[str]] = {}
        self._count = 0

    def add(self, pool: str, owner: str, *, has_power: bool) -> None:
        """Add an object, by its kind and name, whose pods require the nodes of `pool`."""
        self._count += 1
        if self._count <= MOST:
            by_pool = self._with_power if has_power else self._without
            by_pool.setdefault(pool, set()).add(owner)

    def records(self) -> dict[type, dict[str, dict[str, SharePool]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        certain = {
            pool: SharePool(min(owners - self._without.get(pool, set())))
            for pool, owners in self._with_power.items()
            if owners - self._without.get(pool, set())
        }
        return {SharePool: {"": certain}} if certain else {}
