"""The order of requests when more have arrived than the process can answer at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque

# While no caller waits, what arrives together is answered together, for so long.
_SECONDS_WITHOUT_TURNS = 0.002


class CallerTurns:
    """Callers take turns, so that none waits for all the requests of another.

    Between two turns the event loop receives what has arrived, and thus learns who else waits. For
    use by one event loop.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._next_begins = 0.0
        # The next caller first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def take(self, caller: str) -> asyncio.Future[None]:
        """A future that has its result when it is the turn of `caller`.

        The turn ends when the caller waits for something else. A caller that does not want the turn
        any longer cancels the future.
        """
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._is_taken:
            self._is_taken = True
            self._next_begins = time.monotonic() + _SECONDS_WITHOUT_TURNS
            loop.call_soon(self._begin_next)
            turn.set_result(None)
        elif not self._waiting and time.monotonic() < self._next_begins:
            turn.set_result(None)
        else:
            self._waiting.setdefault(caller, deque()).append(turn)
        return turn

    def _begin_next(self) -> None:
        """Begin the next turn. The event loop calls it after it has received what has arrived."""
        self._is_taken = False
        while self._waiting and not self._is_taken:
            caller, turns = next(iter(self._waiting.items()))
            del self._waiting[caller]
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # as the last one
            if not turn.done():
                turn.set_result(None)
                self._is_taken = True
                asyncio.get_running_loop().call_soon(self._begin_next)
