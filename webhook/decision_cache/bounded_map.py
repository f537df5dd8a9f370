"""A map that takes a bounded amount of memory and keeps what was used lately."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """A map that forgets entries which were not used lately, before it exceeds `max_bytes`.

    There are two generations. If the younger one has filled half of the bytes, it becomes the older
    one, which is forgotten. An entry that is used moves into the younger generation.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes // 2
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._young_bytes = self._old_bytes = 0

    @property
    def size(self) -> int:
        """How many bytes the entries take."""
        return self._young_bytes + self._old_bytes

    def get(self, key: K) -> V | None:
        """The value of `key`; None if there is none."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        found = self._old.pop(key, None)
        if found is None:
            return None
        self._old_bytes -= found[1]
        self.put(key, *found)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep `value`, which takes `size` bytes with its key."""
        if self._young_bytes + size > self._max_bytes:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        self._young[key] = value, size
        self._young_bytes += size
