"""The process that evaluates, and this process's end of the pipe to it."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection

from webhook.evaluator.worker import READY
from webhook.reload.policy_source import PolicySource

# How long one evaluation may take; several times as long as one that keeps the bounds.
MAX_SECONDS = 2.0
# The worker imports from where this process does, and from nowhere else.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from webhook.evaluator.worker import main; main(int(sys.argv[2]))"
)
# Seconds after which a worker that does not read its pipe counts as hanging.
_PIPE_SECONDS = 10


class LateError(Exception):
    """There is no answer in time. No TimeoutError: that is an OSError, as errors of a pipe are."""


class WorkerProcess:
    """A running worker. EOFError or OSError if it has ended."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _PIPE_SECONDS, 0))
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # nothing of it comes from a request
                [sys.executable, "-c", PROGRAM, json.dumps(sys.path), str(theirs.fileno())],
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
        """The process."""
        return self._process.pid

    def ask(self, header: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The reply; LateError if there is none after MAX_SECONDS, its start not counted."""
        if not self._is_ready:
            self._is_ready = self._pipe.recv_bytes() == READY
        self._pipe.send_bytes(header)
        self._pipe.send_bytes(body)
        if not self._pipe.poll(MAX_SECONDS):
            raise LateError
        return self._pipe.recv_bytes(), self._pipe.recv_bytes()

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()
