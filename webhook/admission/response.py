"""AdmissionReview v1: encode a decision as bytes.

Source: Kubernetes documentation, "Dynamic Admission Control"; `k8s.io/api/admission/v1`.
"""

from __future__ import annotations

import base64
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
    return PreparedResponse(decision, codec).to(envelope_of(review))


class PreparedResponse:
    """The response with a decision, encoded but for what it takes from the envelope."""

    def __init__(self, decision: Decision, codec: Codec = CODEC) -> None:
        self._codec = codec
        self._status = None if decision.allowed else _status_of(decision)
        response: dict[str, Any] = {"allowed": decision.allowed}
        if decision.operations:
            patch = codec.dumps(list(decision.operations))
            response["patchType"] = PATCH_TYPE
            response["patch"] = base64.b64encode(patch).decode("ascii")
        if decision.warnings:
            response["warnings"] = list(decision.warnings)
        if decision.annotations:
            response["auditAnnotations"] = dict(decision.annotations)
        self._encoded = codec.dumps(response)[1:-1]

    def to(self, envelope: Envelope) -> bytes:
        """The AdmissionReview for the request in `envelope`."""
        dumps = self._codec.dumps
        response = b'"uid":%b,%b' % (dumps(envelope.uid), self._encoded)
        if self._status is not None:
            subject = {"name": envelope.name, "group": envelope.group, "kind": envelope.resource}
            details = {**subject, **self._status["details"]}
            response += b',"status":%b' % dumps({**self._status, "details": details})
        version = dumps(envelope.api_version)
        return b'{"apiVersion":%b,"kind":"AdmissionReview","response":{%b}}' % (version, response)


def _status_of(decision: Decision) -> dict[str, Any]:
    return {
        "status": "Failure",
        "message": decision.message,
        "reason": "Forbidden",
        "details": {"causes": list(decision.causes)},
        "code": FORBIDDEN,
    }
