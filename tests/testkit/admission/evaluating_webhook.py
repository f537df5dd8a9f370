"""A webhook that evaluates each pod by a policy of its own, and records the requests.

The pod's name selects the policy. The response is byte for byte that of the server; only the
choice of the policy differs.
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
from tests.testkit.control_plane.pki import KeyPairFiles
from tests.testkit.control_plane.processes import free_port
from webhook.admission.decider import Decider
from webhook.admission.decision import IGNORED, Decision
from webhook.admission.review import AdmissionReview, decode, encode


class RecordedRequest(NamedTuple):
    """One request and the decision about it."""

    review: AdmissionReview
    decision: Decision


class EvaluatingWebhook:
    """The deciders by pod name, and the requests that the webhook received."""

    def __init__(self, deciders: Mapping[str, Decider]) -> None:
        self._deciders = deciders
        #: The last request about each pod and each of its subresources
        self.requests: dict[tuple[str, str], RecordedRequest] = {}
        self.url = ""

    def respond(self, path: str, body: bytes) -> bytes:
        """The response to one request: the mutating path evaluates, the other one allows."""
        review = decode(body)
        decider = self._deciders.get(review.name)
        decision = IGNORED
        if decider is not None and path.startswith("/mutate"):
            decision = decider.mutate(review, Action.DENY, TODAY)
            # Decoded again, so that the recorded object is not the one that the product works on.
            self.requests[review.name, review.resource] = RecordedRequest(decode(body), decision)
        return encode(review, decision)


def _handler(state: EvaluatingWebhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # send head and body at once, which avoids a delay between them

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            response = state.respond(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(response)))
            self.end_headers()
            self.wfile.write(response)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@contextmanager
def evaluating_webhook(
    deciders: Mapping[str, Decider], pair: KeyPairFiles
) -> Iterator[EvaluatingWebhook]:
    """Serve at `url` until the end of the block."""
    state = EvaluatingWebhook(deciders)

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


# Fields of a pod that a fix sets to false. That means the same as no field.
_OFF = {"hostIPC": False, "hostNetwork": False, "hostPID": False}


def content(pod: Any) -> Any:
    """The parts of a stored pod that users write, without what the API server adds."""
    metadata = {key: pod["metadata"].get(key) for key in ("annotations", "labels")}
    return _stored({"metadata": metadata, "spec": pod["spec"]})


def _stored(value: Any) -> Any:
    """`value` without empty values, and with quantities as text."""
    if isinstance(value, list):
        return [_stored(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item_value in value.items():
        inner = _stored(item_value)
        if key in ("limits", "requests"):
            inner = {name: str(amount) for name, amount in inner.items()}
        if inner not in (None, [], {}) and (key, inner) not in _OFF.items():
            result[key] = inner
    return result
