"""A webhook that judges every pod by a policy of its own, and keeps what it was sent.

Which policy it is, the pod's name says. What the server would answer is answered byte for
byte; only the choice of the policy is the test's.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from rules.finding import Action
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.pki import Pair
from tests.testkit.control_plane.processes import free_port
from webhook.admission.decider import Decider
from webhook.admission.decision import IGNORED, Decision
from webhook.admission.review import AdmissionReview, decode, encode


class Seen(NamedTuple):
    """One call and what it was answered with."""

    review: AdmissionReview
    answer: Decision


class Judging:
    """The judges by the names of the pods, and the calls that have come."""

    def __init__(self, judges: Mapping[str, Decider]) -> None:
        self._judges = judges
        #: The last call about each pod and each of its subresources
        self.seen: dict[tuple[str, str], Seen] = {}
        self.url = ""

    def answered(self, path: str, body: bytes) -> bytes:
        """The answer to one call: the mutating path judges, the other admits."""
        review = decode(body)
        judge = self._judges.get(review.name)
        answer = IGNORED
        if judge is not None and path.startswith("/mutate"):
            answer = judge.mutate(review, Action.DENY, TODAY)
            # The applier of the test must not see what the product's has changed since.
            self.seen[review.name, review.resource] = Seen(decode(body), answer)
        return encode(review, answer)


def _handler(state: Judging) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body at once: in two pieces they wait for each other

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told = state.answered(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def judging(judges: Mapping[str, Decider], pair: Pair) -> Iterator[Judging]:
    """Answer at `url` until the block is left."""
    state = Judging(judges)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer(("127.0.0.1", free_port()), _handler(state)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        state.url = f"https://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


# Fields of a pod that a fix sets to false, which is the same as leaving them out.
_OFF = {"hostIPC": False, "hostNetwork": False, "hostPID": False}


def content(pod: Any) -> Any:
    """What users write of a pod, as the API server stores it; the rest is its own."""
    metadata = {key: pod["metadata"].get(key) for key in ("annotations", "labels")}
    return _stored({"metadata": metadata, "spec": pod["spec"]})


def _stored(value: Any) -> Any:
    """`value` without what is empty, and with its quantities as texts."""
    if isinstance(value, list):
        return [_stored(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, held in value.items():
        inner = _stored(held)
        if key in ("limits", "requests"):
            inner = {name: str(amount) for name, amount in inner.items()}
        if inner not in (None, [], {}) and (key, inner) not in _OFF.items():
            kept[key] = inner
    return kept
