"""A mutating webhook of another project, which is called after gpuward and adds a sidecar."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.testkit.control_plane.pki import KeyPairFiles
from tests.testkit.https_server import Answer, Request, https_server

SIDECAR = {"name": "sidecar", "image": "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"}
# The API server calls webhooks in the order of their names: this one is the last.
NAME = "zz-injector"


def inject(request: Request) -> Answer:
    """Add the sidecar if it is missing."""
    review = json.loads(request.body)
    asked = review.pop("request")
    response: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
    names = [container["name"] for container in asked["object"]["spec"]["containers"]]
    if SIDECAR["name"] not in names:
        added = [{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]
        response["patch"] = base64.b64encode(json.dumps(added).encode()).decode()
        response["patchType"] = "JSONPatch"
    return Answer(json.dumps({**review, "response": response}).encode())


@contextmanager
def run_injector(pair: KeyPairFiles) -> Iterator[str]:
    """Serve on a free port of the loopback interface until the block is left; yields the URL."""
    with https_server(inject, pair.server_context()) as port:
        yield f"https://127.0.0.1:{port}/"


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
