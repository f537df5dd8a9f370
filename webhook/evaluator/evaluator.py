"""Evaluates large reviews in a process of their own, one after the other, each within its time.

Callers take turns, and the tenants of one caller do, so that none waits for all the reviews of
another. The process is started for the first review. If an evaluation takes too long, the process
is ended, so that a bug or an unforeseen way to be slow stops neither it nor other reviews.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection

from webhook.admission.answer import Answer
from webhook.evaluator.turns import EvaluationTask, Tenant, Turns, WaitingTask
from webhook.evaluator.worker import READY_MESSAGE, parse_answer, request_header
from webhook.fair_share import FairShare, NoRoomError
from webhook.reload.policy import PolicySource

# How many seconds of a processor one evaluation may take; several times as many as it takes within
# the bounds.
MAX_EVALUATION_SECONDS = 2.0
# How long it may take where it does not get a processor.
MAX_EVALUATION_WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1
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


class SlowError(LateError):
    """An evaluation takes more than MAX_EVALUATION_SECONDS of a processor."""


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
        self._seconds = self._seconds_at_start = 0.0
        self.policy: PolicySource | None = None
        """The policy that the process has, None if it has none yet."""

    @property
    def process_id(self) -> int:
        """The identifier of the process."""
        return self._process.pid

    @property
    def seconds(self) -> float:
        """Return how many seconds of a processor its evaluations have taken."""
        if self._is_ready:
            with suppress(OSError):  # it has ended
                self._seconds = self._clock() - self._seconds_at_start
        return self._seconds

    def _clock(self) -> float:
        # As clock_getcpuclockid(3) computes it on Linux, which Python does not offer.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def ask(self, header: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The reply. Raises SlowError or LateError if there is none in time.

        The time in which the process starts does not count.
        """
        if not self._is_ready:
            self._is_ready = self._pipe.recv_bytes() == READY_MESSAGE
            self._seconds_at_start = self._clock()
        begun, seconds = time.monotonic(), self.seconds
        self._pipe.send_bytes(header)
        self._pipe.send_bytes(body)
        while not self._pipe.poll(_POLL_SECONDS):
            if self.seconds - seconds > MAX_EVALUATION_SECONDS:
                raise SlowError
            if time.monotonic() - begun > MAX_EVALUATION_WAIT_SECONDS:
                raise LateError
        return self._pipe.recv_bytes(), self._pipe.recv_bytes()

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


MAX_WAITING_REVIEWS = 256
MAX_WAITING_BYTES = 128 << 20


# A review is late because of its own tenant if evaluations of that took this share of the time.
MIN_OWN_SHARE = 0.5


class NotEvaluatedError(Exception):
    """The object itself, or others of its tenant, take too long or too much.

    The text, which continues "because of", says what.
    """


class CongestionError(Exception):
    """There is no answer in time because of the reviews of others."""


def _no_room(*, is_own: bool) -> Exception:
    """The error of a review for which there is no room, because of its own tenant or of others."""
    if is_own:
        return NotEvaluatedError("the many large objects that wait for it; try again")
    return CongestionError()


class Evaluator:
    """Answers reviews in another process. For use by one event loop."""

    def __init__(self) -> None:
        self.ended_workers = 0
        """How many processes took too long, or broke down."""
        self._reviews = FairShare(MAX_WAITING_REVIEWS)
        self._bytes = FairShare(MAX_WAITING_BYTES)
        self._is_closed = False
        self._turns = Turns(lambda: self.processor_seconds)
        self._seconds_of_ended_workers = 0.0
        self._running: asyncio.Task[None] | None = None
        self._worker: WorkerProcess | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluator")

    @property
    def waiting(self) -> int:
        """Return how many reviews wait for an answer."""
        return self._reviews.taken

    @property
    def process_id(self) -> int | None:
        """The process that evaluates; None until there is one."""
        return self._worker.process_id if self._worker else None

    @property
    def processor_seconds(self) -> float:
        """Return how many seconds of a processor all evaluations have taken."""
        worker = self._worker
        return self._seconds_of_ended_workers + (worker.seconds if worker else 0.0)

    async def answer(self, task: EvaluationTask, tenant: Tenant) -> Answer:
        """The answer to the review in `task`, which `tenant` has caused.

        Raises NotEvaluatedError, CongestionError, and what `worker.parse_answer` raises.
        """
        if not self._turns.has_room(tenant, len(task.body)):
            raise _no_room(is_own=True)
        answer = asyncio.get_running_loop().create_future()
        try:
            return await self._wait_for(WaitingTask(task, answer), tenant)
        except NoRoomError as error:
            raise _no_room(is_own=error.is_own) from error

    async def _wait_for(self, waiting: WaitingTask, tenant: Tenant) -> Answer:
        task = waiting.task

        def give_way(is_own: bool) -> None:  # noqa: FBT001
            waiting.fail(_no_room(is_own=is_own))

        self._bytes.require(tenant, len(task.body))
        with (
            self._reviews.hold(tenant, 1, give_way),
            self._bytes.hold(tenant, len(task.body), give_way),
            self._turns.take_part(tenant, waiting),
        ):
            if self._running is None:
                self._running = asyncio.get_running_loop().create_task(self._answer_all())
            arrived = time.monotonic()
            own_seconds = self._turns.seconds(tenant)
            try:
                async with asyncio.timeout(max(task.deadline - time.monotonic(), 0)):
                    return await waiting.answer
            except SlowError as error:
                raise NotEvaluatedError("the time that it takes") from error
            except (TimeoutError, LateError) as error:
                own_seconds = self._turns.seconds(tenant) - own_seconds
                if own_seconds < MIN_OWN_SHARE * (time.monotonic() - arrived):
                    raise CongestionError from error
                text = "the time that it takes, or other large objects take; try again"
                raise NotEvaluatedError(text) from error

    def close(self) -> None:
        """End the process. Reviews that still wait get no answer."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._forget_worker()

    async def _answer_all(self) -> None:
        try:
            while turn := self._turns.next():
                tenant, waiting = turn
                if time.monotonic() > waiting.begin_before:
                    waiting.fail(LateError())
                    continue
                with self._turns.turn_of(tenant):
                    await self._answer_one(waiting)
        finally:
            self._running = None

    async def _answer_one(self, waiting: WaitingTask) -> None:
        run = asyncio.get_running_loop().run_in_executor
        try:
            found = await run(self._thread, self._answer_with_retry, waiting.task)
        except Exception as error:  # noqa: BLE001  # it is raised where the answer is awaited
            waiting.fail(error)
        else:
            if not waiting.answer.done():
                waiting.answer.set_result(found)

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
        worker, self._worker = self._worker, None
        if worker is not None:
            self._seconds_of_ended_workers += worker.seconds
            worker.end()
