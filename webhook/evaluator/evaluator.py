"""Evaluates large reviews in a process of their own, one after the other, each within its time.

The process is started for the first such review. If an evaluation takes too long, the process is
ended, so that a bug or a way to be slow that nobody foresaw stops neither it nor other reviews.
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
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from webhook.admission.answer import Answer
from webhook.evaluator.worker import answer_of, header_of
from webhook.reload.policy import PolicySource

MAX_WAITING = 64
MAX_WAITING_BYTES = 128 << 20
# The worker imports from where this process does, and from nowhere else.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from webhook.evaluator.worker import main; main(int(sys.argv[2]))"
)
# Seconds after which a worker that does not read its pipe counts as hanging.
_PIPE_SECONDS = 10


class NotEvaluatedError(Exception):
    """There is no answer in time. The text, which continues "because of", says why."""


class Evaluator:
    """Answers reviews in another process. For use by one event loop."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many reviews wait for an answer."""
        self.ended_workers = 0
        """How many processes took too long, or broke down."""
        self._waiting_bytes = 0
        self._worker: _Worker | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluator")

    @property
    def process_id(self) -> int | None:
        """The process that evaluates; None until there is one."""
        return self._worker.process_id if self._worker else None

    async def answer(
        self, path: str, body: bytes, today: datetime.date, policy: PolicySource, deadline: float
    ) -> Answer:
        """The answer to the review in `body`, sent to `path`, by `policy`.

        `deadline` is a time of the monotonic clock. Raises NotEvaluatedError, and what
        `worker.answer_of` raises.
        """
        waiting_bytes = self._waiting_bytes + len(body)
        if self.waiting >= MAX_WAITING or waiting_bytes > MAX_WAITING_BYTES:
            raise NotEvaluatedError("the many large objects that wait for it; try again")
        self.waiting += 1
        self._waiting_bytes += len(body)
        try:
            loop = asyncio.get_running_loop()
            answering = loop.run_in_executor(
                self._thread, self._exchange, path, body, today, policy, deadline
            )
            return await asyncio.wait_for(answering, max(deadline - time.monotonic(), 0))
        except (TimeoutError, _LateError) as error:
            text = "the time that it takes, or other large objects take; try again"
            raise NotEvaluatedError(text) from error
        finally:
            self.waiting -= 1
            self._waiting_bytes -= len(body)

    def close(self) -> None:
        """End the process. Reviews that still wait get no answer."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._worker is not None:
            self._worker.end()

    def _exchange(
        self, path: str, body: bytes, today: datetime.date, policy: PolicySource, deadline: float
    ) -> Answer:
        """Runs in the thread, so for one review at a time."""
        try:
            return self._ask(path, body, today, policy, deadline)
        except (EOFError, OSError):
            # A worker that has used much memory ends after its answer.
            self._forget_worker()
        try:
            return self._ask(path, body, today, policy, deadline)
        except (EOFError, OSError) as error:
            self._forget_worker()
            self.ended_workers += 1
            raise NotEvaluatedError("the memory that it takes") from error

    def _ask(
        self, path: str, body: bytes, today: datetime.date, policy: PolicySource, deadline: float
    ) -> Answer:
        if deadline <= time.monotonic():
            raise _LateError
        worker = self._worker = self._worker or _Worker()
        new_policy = None if worker.policy is policy else policy
        try:
            reply = worker.ask(header_of(path, today, new_policy), body, deadline)
        except _LateError:
            self._forget_worker()
            self.ended_workers += 1
            raise
        worker.policy = policy
        return answer_of(*reply)

    def _forget_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None


class _LateError(Exception):
    """The deadline is over. No TimeoutError, because that is an OSError as errors of a pipe are."""


class _Worker:
    """The process, and this process's end of the pipe to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _PIPE_SECONDS, 0))
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # nothing of it comes from a request
                [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # The text of an error could quote an object.
                stderr=subprocess.DEVNULL,
            )
        self._pipe = Connection(ours.detach())
        self.policy: PolicySource | None = None
        """The policy that the process has, None if it has none yet."""

    @property
    def process_id(self) -> int:
        """The process."""
        return self._process.pid

    def ask(self, header: bytes, body: bytes, deadline: float) -> tuple[bytes, bytes]:
        """The reply; EOFError or OSError if the process has ended, `_LateError` if it is late."""
        self._pipe.send_bytes(header)
        self._pipe.send_bytes(body)
        if not self._pipe.poll(max(deadline - time.monotonic(), 0)):
            raise _LateError
        return self._pipe.recv_bytes(), self._pipe.recv_bytes()

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()
