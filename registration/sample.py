"""The sample review that a check sends, and the interpretation of the response."""

from __future__ import annotations

import json
import uuid
from http import HTTPStatus
from typing import Any

from cluster.webhooks.webhook_client import (
    Address,
    CallError,
    Reply,
    Target,
    Validity,
    peer_validity,
    post,
)

SAMPLE = "gpuward-check"
"""The name of the sample pod, of its namespace and user, as in the webhook's log."""
_VERSION = "admission.k8s.io/v1"
_REFUSING_PATH = "/validate/deny"
_EXCERPT_LENGTH = 200  # characters of an unexpected response


class NotGpuwardError(CallError):
    """The response does not come from gpuward."""


def send_sample(target: Target, address: Address | None = None) -> tuple[str, Validity]:
    """Send the sample; returns the outcome in words and the certificate's validity. CallError."""
    uid = str(uuid.uuid4())
    reply = post(target, _review(uid), address)
    return _interpret(target.path, reply, uid), reply.validity


def check_certificate(target: Target, address: Address | None = None) -> tuple[str, Validity]:
    """Only connect; returns this in words and the certificate's validity. Raises CallError."""
    return "only its certificate was checked", peer_validity(target, address)


def _review(uid: str) -> bytes:
    """The review of a pod that takes every GPU of its node without requesting one."""
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    container = {"name": "main", "image": "registry.example.com/sample", "env": [variable]}
    metadata = {"name": SAMPLE, "namespace": SAMPLE}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        **metadata,
        "operation": "CREATE",
        "userInfo": {"username": SAMPLE},
        "object": pod,
        "oldObject": None,
        "dryRun": True,
    }
    review = {"apiVersion": _VERSION, "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def _interpret(path: str, reply: Reply, uid: str) -> str:
    """The outcome in words; NotGpuwardError if gpuward cannot have sent this response."""
    if reply.status != HTTPStatus.OK:
        raise NotGpuwardError(f"HTTP {reply.status}: {_excerpt(reply.body)}")
    response = _response(reply.body)
    if response.get("uid") != uid:
        raise NotGpuwardError("the response is to another request: its uid differs")
    allowed = response.get("allowed")
    if not isinstance(allowed, bool):
        raise NotGpuwardError("the response neither allows nor refuses")
    if not path.endswith(_REFUSING_PATH):
        if not allowed:
            raise NotGpuwardError("it refuses the sample on a path that refuses nothing")
        return "answers"
    if not allowed:
        return "answers, and refuses the sample"
    return "answers; note: the policy allows a pod that takes every GPU without requesting one"


def _response(body: bytes) -> dict[str, Any]:
    try:
        review = json.loads(body)
        is_review = (review["apiVersion"], review["kind"]) == (_VERSION, "AdmissionReview")
        response = review["response"] if is_review else None
    except (ValueError, KeyError, TypeError, RecursionError):
        response = None
    if not isinstance(response, dict):
        raise NotGpuwardError(f"the response is no AdmissionReview: {_excerpt(body)}")
    return response


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:_EXCERPT_LENGTH].decode(errors="replace").split())
    return "".join(c if c.isprintable() else "?" for c in text) or "(nothing)"
