"""The sample that is sent for a checkup, and what may come of it."""

from __future__ import annotations

import datetime
import json
import uuid
from http import HTTPStatus
from typing import Any

from certs.webhooks.call import Address, CallError, Reply, Target, post

SAMPLE = "gpuward-check"
"""How the sample is called wherever it shows up, as in the log of the webhook."""
_VERSION = "admission.k8s.io/v1"
_REFUSING = "/validate/deny"
_SHOWN = 200  # characters of an answer that is not ours


class NotOursError(CallError):
    """What was answered is no answer of gpuward's."""


def asked(target: Target, address: Address | None = None) -> tuple[str, datetime.datetime]:
    """What came of the sample, and when the certificate expires. Raises CallError."""
    uid = str(uuid.uuid4())
    reply = post(target, _review(uid), address)
    return _judged(target.path, reply, uid), reply.until


def _review(uid: str) -> bytes:
    """A pod that takes every GPU of its node without asking for one."""
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
    whole = {"apiVersion": _VERSION, "kind": "AdmissionReview", "request": request}
    return json.dumps(whole).encode()


def _judged(path: str, reply: Reply, uid: str) -> str:
    """What came of the sample; NotOursError if an API server or we would not have it so."""
    if reply.status != HTTPStatus.OK:
        raise NotOursError(f"HTTP {reply.status}: {_shown(reply.body)}")
    response = _response(reply.body)
    if response.get("uid") != uid:
        raise NotOursError("the answer is to another question: it has another uid")
    allowed = response.get("allowed")
    if not isinstance(allowed, bool):
        raise NotOursError("the answer neither allows nor refuses")
    if not path.endswith(_REFUSING):
        if not allowed:
            raise NotOursError("refuses, where nothing is to be refused")
        return "answers"
    if not allowed:
        return "answers, and refuses the sample"
    return "answers; note: the policy lets a pod pass that takes every GPU without asking"


def _response(body: bytes) -> dict[str, Any]:
    try:
        held = json.loads(body)
        ours = (held["apiVersion"], held["kind"]) == (_VERSION, "AdmissionReview")
        response = held["response"] if ours else None
    except (ValueError, KeyError, TypeError, RecursionError):
        response = None
    if not isinstance(response, dict):
        raise NotOursError(f"the answer is no AdmissionReview: {_shown(body)}")
    return response


def _shown(body: bytes) -> str:
    text = " ".join(body[:_SHOWN].decode(errors="replace").split())
    return "".join(c if c.isprintable() else "?" for c in text) or "(nothing)"
