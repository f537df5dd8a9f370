"""A minimal webhook that admits everything with a warning."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.testkit.control_plane.pki import KeyPairFiles


class WarningHandler(BaseHTTPRequestHandler):
    """Admits every object, with a warning."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer an AdmissionReview."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        uid = review.pop("request")["uid"]
        response = {"uid": uid, "allowed": True, "warnings": [f'"é" at {self.headers["Host"]}']}
        response["auditAnnotations"] = {"seen": "yes"}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def serve_warnings(address: str, port: int, pair: KeyPairFiles) -> Iterator[None]:
    """Serve on the address with that certificate until the block is left."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer((address, port), WarningHandler) as server:
        # The API server keeps its connections open: do not wait for their threads.
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def registration(namespace: str, port: int, bundle: bytes) -> dict[str, Any]:
    """A configuration that registers the Service `warner` of a namespace for its new pods."""
    service = {"name": "warner", "namespace": namespace, "port": port}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    config = {"service": service, "caBundle": base64.b64encode(bundle).decode()}
    hook = {
        "name": "warner.example.com",
        "clientConfig": config,
        "rules": [{**rule, "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [hook],
    }
