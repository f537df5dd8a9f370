"""The process that evaluates: it answers one review after the other until its pipe is closed.

When it is ready, it says so. Then it reads a header and a body, and writes a header and a body, for
each review. The headers are JSON.
"""

from __future__ import annotations

import datetime
import json
import os
import resource
import signal
from multiprocessing.connection import Connection
from typing import Any

from policies.exceptions import from_exception, to_exception, to_exception_entry
from rules.inventory.inventory import from_json, to_json
from webhook.admission.answer import Answer, BugReport, Envelope, answer, bug_of
from webhook.admission.decider import Decider
from webhook.admission.review import MalformedReviewError
from webhook.registration import ROUTES
from webhook.reload.policy import PolicySource

READY_MESSAGE = b"ready"
"""The first message of the process."""
# The process that serves all callers comes first where both need the processor.
NICENESS = 5
# The address space. A review needs less than a tenth. Where a container runs out of memory,
# Kubernetes ends all its processes.
MAX_MEMORY_BYTES = 1 << 30
# A process that has used more ends after its answer, which gives the memory back.
MAX_KEPT_KILOBYTES = 300_000


def main(descriptor: int) -> None:
    """Answer reviews that arrive at the file `descriptor`, until its other end is closed."""
    # A signal to the process group of the server lets it answer everything first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICENESS)
    _limit_memory()
    connection = Connection(descriptor)
    connection.send_bytes(READY_MESSAGE)
    decider = None
    while _peak_kilobytes() < MAX_KEPT_KILOBYTES:
        try:
            header = json.loads(connection.recv_bytes())
            body = connection.recv_bytes()
        except EOFError:
            return
        if "policy" in header:
            decider = _policy_source(header["policy"]).decider()
        try:
            reply, response = answer_request(decider, header, body)
        except MemoryError:
            return
        connection.send_bytes(reply)
        connection.send_bytes(response)


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def _peak_kilobytes() -> int:
    """The highest resident memory so far; `getrusage` would include that of the parent."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def _policy_source(fields: dict[str, Any]) -> PolicySource:
    content = fields["content"]
    return PolicySource(
        None if content is None else content.encode(),
        fields["name"],
        tuple(fields["profiles"]),
        tuple(to_exception(to_exception_entry(raw)) for raw in fields["gpu_exceptions"]),
        from_json(fields["inventory"]),
    )


def answer_request(
    decider: Decider | None, header: dict[str, Any], body: bytes
) -> tuple[bytes, bytes]:
    """The header and body of the reply; instead of an answer it may have an error."""
    try:
        if decider is None:
            raise RuntimeError("the first request has no policy")  # noqa: TRY301
        today = datetime.date.fromisoformat(header["today"])
        found = answer(decider, ROUTES[header["path"]], body, today)
        bug = found.bug._asdict() if found.bug else None
        fields = {**found._asdict(), "body": "", "bug": bug}
        return json.dumps({"answer": fields}).encode(), found.body
    except MalformedReviewError as error:
        return json.dumps({"malformed": str(error)}).encode(), b""
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  # the server logs it
        return json.dumps({"bug": bug_of(error)._asdict()}).encode(), b""


def request_header(path: str, today: datetime.date, source: PolicySource | None) -> bytes:
    """The header of a request; with the `source` of the policy if the worker needs it."""
    header: dict[str, Any] = {"path": path, "today": today.isoformat()}
    if source is not None:
        content = None if source.content is None else source.content.decode()
        header["policy"] = {
            "content": content,
            "name": source.name,
            "profiles": source.profiles,
            "gpu_exceptions": [from_exception(exception) for exception in source.gpu_exceptions],
            "inventory": to_json(source.inventory),
        }
    return json.dumps(header).encode()


def parse_answer(header: bytes, body: bytes) -> Answer:
    """The answer in a reply. MalformedReviewError and EvaluatorError as the worker reported."""
    reply = json.loads(header)
    if "malformed" in reply:
        raise MalformedReviewError(reply["malformed"])
    if "bug" in reply:
        raise EvaluatorError(BugReport(**reply["bug"]))
    fields = reply["answer"]
    bug = BugReport(**fields["bug"]) if fields["bug"] else None
    return Answer(**{**fields, "body": body, "envelope": Envelope(*fields["envelope"]), "bug": bug})


class EvaluatorError(Exception):
    """The worker failed because of a bug in gpuward."""

    def __init__(self, bug: BugReport) -> None:
        super().__init__(bug.error_type)
        self.bug = bug
