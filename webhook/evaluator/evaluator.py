"""Evaluates large reviews in a process of their own, one after the other, each within its time.

Tenants take turns, so that nobody waits for all the reviews of another. The process is started for
the first review. If an evaluation takes too long, the process is ended, so that a bug or a way to
be slow that nobody foresaw stops neither it nor other reviews.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import NamedTuple

from webhook.admission.answer import Answer
from webhook.evaluator.worker import READY_MESSAGE, parse_answer, request_header
from webhook.reload.policy import PolicySource

# How long one evaluation may take; several times as long as one that keeps the bounds.
MAX_EVALUATION_SECONDS = 2.0
# The worker imports from where this process does, and from nowhere else.
WORKER_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from webhook.evaluator.worker import main; main(int(sys.argv[2]))"
)
# Seconds after which a worker that does not read its pipe counts as hanging.
_PIPE_SECONDS = 10


class LateError(Exception):
    """There is no answer in time.

    It is not TimeoutError, because that is an OSError, as errors of a pipe are.
    """


class WorkerProcess:
    """A running worker. EOFError or OSError if it has ended."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _PIPE_SECONDS, 0))
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # nothing of it comes from a request
                [sys.executable, "-c", WORKER_PROGRAM, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # The text of an error could quote an object.
                stderr=subprocess.DEVNULL,
            )
        self._pipe = Connection(ours.detach())
        self._is_ready = False
        self.policy: PolicySource | None = None
        """The policy that the process has, None if it has none yet."""

    @property
    def process_id(self) -> int:
        """The identifier of the process."""
        return self._process.pid

    def ask(self, header: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The reply. Raises LateError if there is none after MAX_EVALUATION_SECONDS.

        The time in which the process starts does not count.
        """
        if not self._is_ready:
            self._is_ready = self._pipe.recv_bytes() == READY_MESSAGE
        self._pipe.send_bytes(header)
        self._pipe.send_bytes(body)
        if not self._pipe.poll(MAX_EVALUATION_SECONDS):
            raise LateError
        return self._pipe.recv_bytes(), self._pipe.recv_bytes()

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


MAX_WAITING_REVIEWS = 256
MAX_WAITING_BYTES = 128 << 20
# Of one tenant. The first review may be larger.
MAX_WAITING_OF_TENANT = 16
MAX_WAITING_BYTES_OF_TENANT = 16 << 20
# A review is not begun with less time left, unless it had little from the start: the evaluation of
# one that keeps the bounds takes half of it.
MIN_SECONDS_LEFT = 1.0


class NotEvaluatedError(Exception):
    """There is no answer in time. The text, which continues "because of", says why."""


class EvaluationTask(NamedTuple):
    """A review to answer: its URL path and body, the date, the policy, and until when.

    `deadline` is a time of the monotonic clock.
    """

    path: str
    body: bytes
    today: datetime.date
    policy: PolicySource
    deadline: float


class _WaitingTask(NamedTuple):
    task: EvaluationTask
    begin_before: float
    answer: asyncio.Future[Answer]


class Evaluator:
    """Answers reviews in another process. For use by one event loop."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many reviews wait for an answer."""
        self.ended_workers = 0
        """How many processes took too long, or broke down."""
        self._waiting_bytes = 0
        self._is_closed = False
        self._queues: dict[str, deque[_WaitingTask]] = {}
        self._running: asyncio.Task[None] | None = None
        self._worker: WorkerProcess | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluator")

    @property
    def process_id(self) -> int | None:
        """The process that evaluates; None until there is one."""
        return self._worker.process_id if self._worker else None

    async def answer(self, task: EvaluationTask, tenant: str) -> Answer:
        """The answer to the review in `task`, which `tenant` has caused.

        Raises NotEvaluatedError, and what `worker.answer_of` raises.
        """
        if not self._has_room(len(task.body), self._queues.get(tenant, ())):
            raise NotEvaluatedError("the many large objects that wait for it; try again")
        self.waiting += 1
        self._waiting_bytes += len(task.body)
        try:
            async with asyncio.timeout(max(task.deadline - time.monotonic(), 0)):
                return await self._enqueue(task, tenant)
        except (TimeoutError, LateError) as error:
            text = "the time that it takes, or other large objects take; try again"
            raise NotEvaluatedError(text) from error
        finally:
            self.waiting -= 1
            self._waiting_bytes -= len(task.body)

    def close(self) -> None:
        """End the process. Reviews that still wait get no answer."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._forget_worker()

    def _has_room(self, size: int, queue: Collection[_WaitingTask]) -> bool:
        """Whether a review of `size` bytes may wait behind those in the `queue` of its tenant."""
        if self.waiting >= MAX_WAITING_REVIEWS or self._waiting_bytes + size > MAX_WAITING_BYTES:
            return False
        bytes_of_tenant = size + sum(len(waiting.task.body) for waiting in queue)
        is_first = not queue and MAX_WAITING_OF_TENANT > 0
        few = len(queue) < MAX_WAITING_OF_TENANT and bytes_of_tenant <= MAX_WAITING_BYTES_OF_TENANT
        return is_first or few

    def _enqueue(self, task: EvaluationTask, tenant: str) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        left = task.deadline - time.monotonic()
        begin_before = task.deadline - min(MIN_SECONDS_LEFT, left / 2)
        waiting = _WaitingTask(task, begin_before, loop.create_future())
        self._queues.setdefault(tenant, deque()).append(waiting)
        if self._running is None:
            self._running = loop.create_task(self._answer_all())
        return waiting.answer

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while waiting := self._next_waiting_task():
                if waiting.answer.done():  # its time was over while it waited
                    continue
                if time.monotonic() > waiting.begin_before:
                    waiting.answer.set_exception(LateError())
                    continue
                try:
                    found = await loop.run_in_executor(
                        self._thread, self._answer_with_retry, waiting.task
                    )
                except Exception as error:  # noqa: BLE001  # it is raised where the answer is awaited
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
                else:
                    if not waiting.answer.done():
                        waiting.answer.set_result(found)
        finally:
            self._running = None

    def _next_waiting_task(self) -> _WaitingTask | None:
        """The first review of the tenant whose turn it is."""
        while self._queues:
            tenant = next(iter(self._queues))
            queue = self._queues.pop(tenant)
            waiting = queue.popleft()
            if queue:
                self._queues[tenant] = queue  # as the last one
            return waiting
        return None

    def _answer_with_retry(self, task: EvaluationTask) -> Answer:
        """Runs in the thread, so for one review at a time."""
        try:
            return self._ask_worker(task)
        except (EOFError, OSError):
            # A worker that has used much memory ends after its answer.
            self._forget_worker()
        try:
            return self._ask_worker(task)
        except (EOFError, OSError) as error:
            self._forget_worker()
            self.ended_workers += 1
            raise NotEvaluatedError("the memory that it takes") from error

    def _ask_worker(self, task: EvaluationTask) -> Answer:
        if self._is_closed:
            raise LateError
        worker = self._worker = self._worker or WorkerProcess()
        new_policy = None if worker.policy is task.policy else task.policy
        try:
            reply = worker.ask(request_header(task.path, task.today, new_policy), task.body)
        except LateError:
            self._forget_worker()
            self.ended_workers += 1
            raise
        worker.policy = task.policy
        return parse_answer(*reply)

    def _forget_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None
