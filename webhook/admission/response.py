"""AdmissionReview v1: encode a decision as bytes.

Source: Kubernetes documentation, "Dynamic Admission Control"; `k8s.io/api/admission/v1`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from webhook.admission.codec import CODEC, Codec
from webhook.admission.decision import Decision
from webhook.admission.review import AdmissionReview

PATCH_TYPE = "JSONPatch"
FORBIDDEN = 403


class Envelope(NamedTuple):
    """What of a review enters the answer and the log, and no decision about a new pod.

    The owner is the controller of the object; empty if there is none.
    """

    uid: str
    api_version: str
    group: str
    kind: str
    resource: str
    operation: str
    namespace: str
    name: str
    generate_name: str
    owner_kind: str
    owner_name: str
    user: str
    dry_run: bool


def envelope_of(review: AdmissionReview) -> Envelope:
    """The envelope of `review`."""
    metadata = as_object(as_object(review.object).get("metadata"))
    owners = as_objects(metadata.get("ownerReferences"))
    owner = next((o for _, o in owners if o.get("controller") is True), {})
    return Envelope(
        uid=review.uid,
        api_version=review.api_version,
        group=review.group,
        kind=review.kind,
        resource=review.resource,
        operation=review.operation,
        namespace=review.namespace,
        name=review.name,
        generate_name=as_text(metadata.get("generateName")),
        owner_kind=as_text(owner.get("kind")),
        owner_name=as_text(owner.get("name")),
        user=review.user,
        dry_run=review.dry_run,
    )


def encode(review: AdmissionReview, decision: Decision, codec: Codec = CODEC) -> bytes:
    """The AdmissionReview with the `decision` about `review`."""
    return encode_response(envelope_of(review), response_of(decision, codec), codec)


def response_of(decision: Decision, codec: Codec = CODEC) -> dict[str, Any]:
    """The fields of the response that depend on the `decision` alone."""
    response: dict[str, Any] = {"allowed": decision.allowed}
    if decision.operations:
        response["patchType"] = PATCH_TYPE
        response["patch"] = base64.b64encode(codec.dumps(list(decision.operations))).decode("ascii")
    if not decision.allowed:
        response["status"] = {
            "status": "Failure",
            "message": decision.message,
            "reason": "Forbidden",
            "details": {"causes": list(decision.causes)},
            "code": FORBIDDEN,
        }
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    if decision.annotations:
        response["auditAnnotations"] = dict(decision.annotations)
    return response


def encode_response(envelope: Envelope, response: Mapping[str, Any], codec: Codec = CODEC) -> bytes:
    """The AdmissionReview with the `response` to the request in `envelope`."""
    if "status" in response:
        subject = {"name": envelope.name, "group": envelope.group, "kind": envelope.resource}
        status = response["status"]
        details = {**subject, **status["details"]}
        response = {**response, "status": {**status, "details": details}}
    return codec.dumps(
        {
            "apiVersion": envelope.api_version,
            "kind": "AdmissionReview",
            "response": {"uid": envelope.uid, **response},
        }
    )
