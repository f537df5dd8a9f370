"""Caches whose size tenants cannot increase without bound.

Tenants choose many of the keys, such as the names of variables. A cache therefore keeps at most
`MAX_ENTRIES` entries, and none whose key has more than `MAX_KEY_CHARACTERS`. A full cache
forgets its entries: otherwise the odd names of one tenant would fill it for ever.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["MAX_ENTRIES", "MAX_KEY_CHARACTERS", "BoundedCache", "cached_by_text", "cached_property"]

K = TypeVar("K")
V = TypeVar("V")

MAX_ENTRIES = 4096
# The length of the longest valid resource name: domain, slash, name.
MAX_KEY_CHARACTERS = 253 + 1 + 63

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801  # lower case, like `property`
        """`functools.cached_property` without its lock.

        The lock takes longer than most properties.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __get__(self, owner: Any, _type: type | None = None) -> Any:
            """The value for `owner`, stored as an attribute of `owner` from then on."""
            value = self._compute(owner)
            setattr(owner, self._name, value)
            return value


class BoundedCache(dict[K, V]):
    """A dictionary that `store` empties when it is full.

    It may only have what can be computed again. Another thread may empty it at any time, so look
    an entry up once, and never test for it first.
    """

    def store(self, key: K, value: V) -> V:
        """Store `value` under `key`, unless the key is too long; return `value` in either case."""
        if not isinstance(key, str) or len(key) <= MAX_KEY_CHARACTERS:
            if len(self) >= MAX_ENTRIES:
                self.clear()
            self[key] = value
        return value


class _CacheByText(BoundedCache[str, V]):
    """The results of a function of one text, which computes those that are missing."""

    def __init__(self, function: Callable[[str], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, text: str) -> V:
        return self.store(text, self._function(text))


def cached_by_text(function: Callable[[str], V]) -> Callable[[str], V]:
    """Decorate a pure `function` of one text: cache its results for short texts."""
    return _CacheByText(function).__getitem__  # in C: a known result needs no call of Python
