"""A mutating webhook of another project, which is called after gpuward and adds a sidecar."""

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

SIDECAR = {"name": "sidecar", "image": "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"}
# The API server calls webhooks in the order of their names: this one is the last.
NAME = "zz-injector"


class InjectorHandler(BaseHTTPRequestHandler):
    """Adds the sidecar to pods without it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer an AdmissionReview."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review.pop("request")
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        names = [container["name"] for container in request["object"]["spec"]["containers"]]
        if SIDECAR["name"] not in names:
            added = [{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]
            response["patch"] = base64.b64encode(json.dumps(added).encode()).decode()
            response["patchType"] = "JSONPatch"
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def run_injector(pair: KeyPairFiles) -> Iterator[str]:
    """Serve on a port of the loopback interface until the block is left; yields the URL."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), InjectorHandler) as server:
        # The API server keeps its connections open: do not wait for their threads.
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def configuration(namespace: str, url: str, bundle: bytes) -> dict[str, Any]:
    """A configuration that registers the webhook for new pods of a namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hook = {
        "name": "injector.example.com",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(bundle).decode()},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [hook],
    }
