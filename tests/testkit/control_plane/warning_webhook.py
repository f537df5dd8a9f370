"""A minimal webhook that admits everything with a warning."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.testkit.control_plane.pki import KeyPairFiles
from tests.testkit.https_server import Answer, Request, https_server


def warn(request: Request) -> Answer:
    """Admit the object, with a warning."""
    review = json.loads(request.body)
    uid = review.pop("request")["uid"]
    response = {"uid": uid, "allowed": True, "warnings": [f'"é" at {request.host}']}
    response["auditAnnotations"] = {"seen": "yes"}
    return Answer(json.dumps({**review, "response": response}).encode())


@contextmanager
def serve_warnings(address: str, port: int, pair: KeyPairFiles) -> Iterator[None]:
    """Serve on the address with that certificate until the block is left."""
    with https_server(warn, pair.server_context(), (address, port)):
        yield


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
