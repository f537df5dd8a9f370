"""Others that may answer in the place of the webhook, and what a checkup finds there."""

from __future__ import annotations

import base64
import datetime
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certs.pki.authority import new_authority, sign_leaf
from cluster.api import ConfigurationKind, ConfigurationRef
from registration.check import CheckResult, check
from registration.sample import send_sample

NAME = "gpuward.gpuward-system.svc"
DAY = datetime.timedelta(days=1)
WANTED = [ConfigurationRef(ConfigurationKind.VALIDATING, "gpuward")]
Answer = Callable[[dict[str, Any]], tuple[int, bytes]]
"""From the request of a review to status and body."""


def review(uid: Any, **response: Any) -> bytes:
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**whole, "response": {"uid": uid, **response}}).encode()


def allowing(request: dict[str, Any]) -> tuple[int, bytes]:
    return 200, review(request["uid"], allowed=True)


@contextmanager
def answering(certificate: Path, answer: Answer = allowing) -> Iterator[tuple[str, int]]:
    """Where somebody answers so, with a certificate and key out of that file."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answered = answer(json.loads(body)["request"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answered)

        def log_message(self, *_: Any) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield "127.0.0.1", server.server_port
        finally:
            server.shutdown()
            thread.join()


class Signed:
    """A certificate of an authority of its own, valid for a day from `made`."""

    def __init__(self, folder: Path, made: datetime.datetime) -> None:
        authority = new_authority([NAME], made)
        leaf = sign_leaf(authority, [NAME], made, DAY)
        self.bundle, self.certificate = authority.certificate_pem, leaf.certificate_pem
        self.file = folder / "leaf.pem"
        self.file.write_bytes(leaf.certificate_pem + leaf.key_pem)


def check_result(
    bundle: bytes, address: tuple[str, int] | None, path: str = "/mutate/deny", **target: Any
) -> CheckResult:
    """What a checkup finds where one webhook has this caBundle, or another `target`."""
    service = {"name": "gpuward", "namespace": "gpuward-system", "port": 443, "path": path}
    entry = {
        "name": "deny.gpuward.io",
        "clientConfig": {
            **(target or {"service": service}),
            "caBundle": base64.b64encode(bundle).decode(),
        },
        "failurePolicy": "Ignore",
        "timeoutSeconds": 3,
    }
    checkup = check(lambda *_: {"webhooks": [entry]}, partial(send_sample, address=address), WANTED)
    (only,) = checkup.results
    assert checkup.ok == only.ok
    return only


@contextmanager
def saying(words: bytes) -> Iterator[tuple[str, int]]:
    """Where somebody says this to whoever comes, and hangs up."""

    def speak() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(words)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=speak, daemon=True).start()
        yield listening.getsockname()
