"""Servers that answer in place of the webhook, and the result of checking them."""

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
from pathlib import Path
from typing import Any

from certs.authority import new_authority, sign_leaf
from cluster.api.errors import ConfigurationKind, ConfigurationRef
from cluster.webhooks.check import CheckResult, check, send_sample
from tests.testkit.https_server import Answer, https_server

NAME = "gpuward.gpuward-system.svc"
DAY = datetime.timedelta(days=1)
REFS = [ConfigurationRef(ConfigurationKind.VALIDATING, "gpuward")]
Respond = Callable[[dict[str, Any]], Answer]
"""Maps the request of an AdmissionReview to an HTTP answer."""


def review(uid: Any, **response: Any) -> bytes:
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**head, "response": {"uid": uid, **response}}).encode()


def allow(request: dict[str, Any]) -> Answer:
    return Answer(review(request["uid"], allowed=True))


@contextmanager
def serve_answer(certificate: Path, respond: Respond = allow) -> Iterator[tuple[str, int]]:
    """Serve `respond` with the certificate and key of a file; yields host and port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with https_server(lambda sent: respond(json.loads(sent.body)["request"]), context) as port:
        yield "127.0.0.1", port


class SignedCertificate:
    """A certificate of its own authority, valid for a day from `created`."""

    def __init__(self, folder: Path, created: datetime.datetime) -> None:
        authority = new_authority([NAME], created)
        leaf = sign_leaf(authority, [NAME], created, DAY)
        self.bundle, self.certificate = authority.certificate_pem, leaf.certificate_pem
        self.file = folder / "leaf.pem"
        self.file.write_bytes(leaf.certificate_pem + leaf.key_pem)


def check_result(
    bundle: bytes, address: tuple[str, int] | None, path: str = "/mutate/deny", **target: Any
) -> CheckResult:
    """The check result for one webhook with this caBundle, and `target` as its address."""
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
    report = check(lambda *_: {"webhooks": [entry]}, partial(send_sample, address=address), REFS)
    (only,) = report.results
    assert report.ok == only.ok
    return only


@contextmanager
def serve_bytes(content: bytes) -> Iterator[tuple[str, int]]:
    """Send `content` to the first client and close; yields host and port."""

    def send_content() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=send_content, daemon=True).start()
        yield listening.getsockname()
