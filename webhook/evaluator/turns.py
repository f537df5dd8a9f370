"""The order of large reviews: callers take turns, and so do the tenants of one caller."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from webhook.admission.answer import Answer
from webhook.reload.policy import PolicySource

# Of one tenant. The first review may be larger.
MAX_WAITING_OF_TENANT = 16
MAX_WAITING_BYTES_OF_TENANT = 16 << 20
# A review is not begun with less time left, unless it had little from the start: the evaluation of
# one that keeps the bounds takes half of it.
MIN_SECONDS_LEFT = 1.0


class EvaluationTask(NamedTuple):
    """A review to answer: its URL path and body, the date, the policy, and until when.

    `deadline` is a time of the monotonic clock.
    """

    path: str
    body: bytes
    today: datetime.date
    policy: PolicySource
    deadline: float


class WaitingTask:
    """A task, and where its answer is awaited."""

    def __init__(self, task: EvaluationTask, answer: asyncio.Future[Answer]) -> None:
        left = task.deadline - time.monotonic()
        self.task = task
        self.begin_before = task.deadline - min(MIN_SECONDS_LEFT, left / 2)
        self.answer = answer

    def fail(self, error: Exception) -> None:
        """Raise `error` where the answer is awaited, unless there is one."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Tenant(NamedTuple):
    """A namespace, or a user without one, as `caller` names it. Other callers may name the same."""

    caller: str
    name: str


class _Queue:
    """The reviews of one tenant, and how many seconds of a processor earlier ones have taken."""

    def __init__(self) -> None:
        self.waiting: deque[WaitingTask] = deque()
        self.members = 0
        self.seconds = 0.0


class Turns:
    """The reviews that wait, by tenant. For use by one event loop.

    `clock` returns how many seconds of a processor all evaluations have taken.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[Tenant, _Queue] = {}
        # The order of the turns: the next caller first, and in it the next tenant.
        self._order: dict[str, dict[str, None]] = {}
        self._current: tuple[Tenant, float] | None = None

    def has_room(self, tenant: Tenant, size: int) -> bool:
        """Return whether a review of `size` bytes may wait behind those of its `tenant`."""
        queue = self._queues.get(tenant)
        if queue is None or not queue.waiting:
            return MAX_WAITING_OF_TENANT > 0
        waiting_bytes = sum(len(waiting.task.body) for waiting in queue.waiting)
        few = len(queue.waiting) < MAX_WAITING_OF_TENANT
        return few and waiting_bytes + size <= MAX_WAITING_BYTES_OF_TENANT

    @contextmanager
    def take_part(self, tenant: Tenant, waiting: WaitingTask) -> Iterator[None]:
        """Let `waiting` wait for its turn, until the end of the context at most."""
        queue = self._queues.setdefault(tenant, _Queue())
        queue.members += 1
        queue.waiting.append(waiting)
        self._order.setdefault(tenant.caller, {}).setdefault(tenant.name)
        try:
            yield
        finally:
            queue.members -= 1
            if not queue.members:
                del self._queues[tenant]

    def next(self) -> tuple[Tenant, WaitingTask] | None:
        """The review whose turn it is, of those that still wait; None if there is none."""
        while self._order:
            caller, names = next(iter(self._order.items()))
            name = next(iter(names))
            del self._order[caller], names[name]
            tenant = Tenant(caller, name)
            queue = self._queues.get(tenant)
            waiting = queue.waiting.popleft() if queue and queue.waiting else None
            if queue and queue.waiting:
                names[name] = None  # as the last one
            if names:
                self._order[caller] = names
            if waiting is not None and not waiting.answer.done():
                return tenant, waiting
        return None

    @contextmanager
    def turn_of(self, tenant: Tenant) -> Iterator[None]:
        """Count what is evaluated in this context as that of `tenant`."""
        started = self._clock()
        self._current = (tenant, started)
        try:
            yield
        finally:
            self._current = None
            if tenant in self._queues:
                self._queues[tenant].seconds += self._clock() - started

    def seconds(self, tenant: Tenant) -> float:
        """Return how many seconds of a processor `tenant`, which takes part, has used."""
        seconds = self._queues[tenant].seconds
        if self._current is not None and self._current[0] == tenant:
            seconds += self._clock() - self._current[1]
        return seconds
