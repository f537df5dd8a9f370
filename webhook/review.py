"""AdmissionReview v1: from bytes to a call, from an answer to bytes.

Facts: Kubernetes documentation, "Dynamic Admission Control"; `k8s.io/api/admission/v1`.
"""

from __future__ import annotations

import base64
import gc
from typing import Any, NamedTuple

from rules.base.json_patch import Json
from webhook.answer import Answer
from webhook.codec import CODEC, Codec, read_deep

PATCH_TYPE = "JSONPatch"
FORBIDDEN = 403


class MalformedReview(ValueError):  # noqa: N818  # it names what was sent
    """What was sent is no AdmissionReview; the text says why and quotes nothing of it."""


class Review(NamedTuple):
    """One call of the API server.

    `resource` is in the plural, a subresource behind a slash: `pods/ephemeralcontainers`.
    `object` is new and `old` is what it replaces; either is None where there is none.
    `size` is what the whole call took, in bytes.
    """

    uid: str
    api_version: str
    group: str
    kind: str
    resource: str
    operation: str
    namespace: str
    name: str
    user: str
    object: Json
    old: Json
    dry_run: bool
    size: int


def decode(body: bytes, codec: Codec = CODEC) -> Review:
    """The call in `body`; MalformedReview if there is none."""
    try:
        raw = _read(body, codec)
    except RecursionError as error:
        raise MalformedReview("the body is nested too deeply") from error
    except ValueError as error:
        raise MalformedReview("the body is not JSON") from error
    if not isinstance(raw, dict) or raw.get("kind") != "AdmissionReview":
        raise MalformedReview('the body is not an AdmissionReview (kind: "AdmissionReview")')
    version = raw.get("apiVersion")
    if not isinstance(version, str) or not version:
        raise MalformedReview("the AdmissionReview has no apiVersion")
    request = raw.get("request")
    if not isinstance(request, dict):
        raise MalformedReview("the AdmissionReview has no request")
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        raise MalformedReview("the request has no uid")
    return _review(version, request, len(body))


def _read(body: bytes, codec: Codec) -> Any:
    # Nothing that is read can be garbage yet, and looking for it takes five times as long.
    gc.disable()
    try:
        return codec.loads(body)
    except (ValueError, RecursionError):
        # Both codecs stop at about a thousand levels. To answer with an error would let the
        # object pass wherever failurePolicy is Ignore.
        return read_deep(body)
    finally:
        gc.enable()


def _review(version: str, request: dict[str, Any], size: int) -> Review:
    kind = _object(request, "kind")
    subresource = _text(request, "subResource")
    resource = _text(_object(request, "resource"), "resource")
    held, old = request.get("object"), request.get("oldObject")
    for name, value in (("object", held), ("oldObject", old)):
        if value is not None and not isinstance(value, dict):
            raise MalformedReview(f"request.{name} is not an object")
    return Review(
        uid=request["uid"],
        api_version=version,
        group=_text(kind, "group"),
        kind=_text(kind, "kind"),
        resource=f"{resource}/{subresource}" if subresource else resource,
        operation=_text(request, "operation"),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        user=_text(_object(request, "userInfo"), "username"),
        object=held,
        old=old,
        dry_run=request.get("dryRun") is True,
        size=size,
    )


def _object(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedReview(f"request.{name} is not an object")
    return value


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedReview(f"request.{name} is not text")
    return value


def encode(review: Review, answer: Answer, codec: Codec = CODEC) -> bytes:
    """The AdmissionReview that tells the API server `answer`."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": answer.allowed}
    if answer.operations:
        response["patchType"] = PATCH_TYPE
        response["patch"] = base64.b64encode(codec.dumps(list(answer.operations))).decode("ascii")
    if not answer.allowed:
        response["status"] = {
            "status": "Failure",
            "message": answer.message,
            "reason": "Forbidden",
            "details": {
                "name": review.name,
                "group": review.group,
                "kind": review.resource,
                "causes": list(answer.causes),
            },
            "code": FORBIDDEN,
        }
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    if answer.annotations:
        response["auditAnnotations"] = dict(answer.annotations)
    sent = {"apiVersion": review.api_version, "kind": "AdmissionReview", "response": response}
    return codec.dumps(sent)
