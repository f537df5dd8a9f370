"""Room that is shared: if it is full, the owner with the most gives something back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

Owner = tuple[str, ...]
"""The owner of room, from the widest group to the narrowest, such as a caller and its tenant."""


class NoRoomError(Exception):
    """There is no room. `is_own` says whether its owner would have the most of all."""

    def __init__(self, *, is_own: bool) -> None:
        super().__init__()
        self.is_own = is_own


class _Share(NamedTuple):
    """The part of the room that one request has."""

    owner: Owner
    size: int
    give_back: Callable[[bool], object]


class FairShare:
    """Room of `limit` units. For use by one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares: list[_Share] = []
        self.taken = 0
        """How many units are taken."""

    @contextmanager
    def hold(self, owner: Owner, size: int, give_back: Callable[[bool], object]) -> Iterator[None]:
        """Hold `size` units for `owner`; NoRoomError if there is no room.

        If the room is full, those that have more than `owner` would have lose what they took last.
        Their `give_back` is called with whether it went to another member of their widest group.
        If there is no room all the same, no owner loses anything.
        """
        for lost in self._shares_to_take(owner, size):
            self._release(lost)
            lost.give_back(lost.owner[0] == owner[0])
        share = _Share(owner, size, give_back)
        self._shares.append(share)
        self.taken += size
        try:
            yield
        finally:
            self._release(share)

    def require(self, owner: Owner, size: int) -> None:
        """NoRoomError if `hold` would raise it now."""
        self._shares_to_take(owner, size)

    def _shares_to_take(self, owner: Owner, size: int) -> list[_Share]:
        """The shares to take from others for `owner`; NoRoomError if that is not enough."""
        kept, taken, found = list(self._shares), self.taken, list[_Share]()
        while taken + size > self._limit:
            share = kept.pop(_index_to_take(kept, owner, size))
            taken -= share.size
            found.append(share)
        return found

    def _release(self, share: _Share) -> None:
        for index, held in enumerate(self._shares):
            if held is share:
                del self._shares[index]
                self.taken -= share.size
                return


def _index_to_take(shares: Sequence[_Share], owner: Owner, size: int) -> int:
    """The index of the last share of a group that has more than the group of `owner` would have.

    It is a group beside that of `owner`, of the widest that there is. NoRoomError if none is.
    """
    is_own = True
    for depth in range(1, len(owner) + 1):
        taken: Counter[Owner] = Counter()
        for share in shares:
            if share.owner[: depth - 1] == owner[: depth - 1]:
                taken[share.owner[:depth]] += share.size
        wanted = taken[owner[:depth]] + size
        largest = max(taken, key=taken.__getitem__, default=owner)
        if taken[largest] > wanted:
            return max(n for n, share in enumerate(shares) if share.owner[:depth] == largest)
        is_own = taken[largest] < wanted
    raise NoRoomError(is_own=is_own)
