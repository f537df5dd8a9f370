"""Facts that are read when they are first wanted, and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["kept", "remembered"]

T = TypeVar("T")

# What is remembered comes from tenants, so it must stay bounded, and so must its length.
_TEXTS, _LONGEST = 4096, 128

if TYPE_CHECKING:
    from functools import cached_property as kept
else:

    class kept:  # noqa: N801  # used as `property` is
        """`functools.cached_property` without its lock, which costs more than most facts do."""

        def __init__(self, read: Callable[[Any], Any]) -> None:
            self._read = read
            self._name = read.__name__
            self.__doc__ = read.__doc__

        def __get__(self, owner: Any, _type: type | None = None) -> Any:
            """The fact about `owner`, whose own attribute it is from then on."""
            fact = self._read(owner)
            setattr(owner, self._name, fact)
            return fact


def remembered(read: Callable[[str], T]) -> Callable[[str], T]:
    """`read` that need not read the same short text twice."""
    known = lru_cache(maxsize=_TEXTS)(read)

    def recall(text: str) -> T:
        return known(text) if len(text) <= _LONGEST else read(text)

    recall.__doc__ = read.__doc__
    return recall
