"""The answer to one review: from the bytes of a body to the bytes of a response."""

from __future__ import annotations

import base64
import datetime
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.bounds import StepLimit, TooManyStepsError
from rules.finding import Action
from webhook.admission.decider import Decider
from webhook.admission.decision import NO_TEXTS, Decision, Outcome
from webhook.admission.review import CODEC, AdmissionReview, Codec, decode, decode_fast
from webhook.registration import Route
from webhook.settings import MAX_NAME_CHARACTERS

# Of AdmissionReview v1; sources are in `webhook.admission.review`.
PATCH_TYPE = "JSONPatch"
FORBIDDEN_STATUS = 403


class Envelope(NamedTuple):
    """The fields of a review that only the answer and the log contain.

    No decision about a new pod depends on them.

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
    return PreparedResponse(decision, codec).for_envelope(envelope_of(review))


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

    def for_envelope(self, envelope: Envelope) -> bytes:
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
        "code": FORBIDDEN_STATUS,
    }


INTERNAL_ERROR = "gpuward could not evaluate this object; that is a bug in gpuward, see its log"


class BugReport(NamedTuple):
    """An error that is a bug of gpuward: its type and where it was raised, without its message.

    Such messages quote data of tenants.
    """

    error_type: str
    traceback: Sequence[str]


class Answer(NamedTuple):
    """The response of the server to a review, and what it records. Plain data, as JSON has it.

    - `body`: the encoded AdmissionReview.
    - `envelope`: names from the request.
    - `failures`: the rules that failed, each with the type of its error.
    - `details`: what the log says about the decision, as the text of a JSON object; empty if the
      decision is not logged.
    - `bug`: why there was no evaluation, if it was a bug.
    """

    body: bytes
    envelope: Envelope
    outcome: Outcome
    rule_outcomes: Mapping[str, str] = NO_TEXTS
    failures: Sequence[tuple[str, str]] = ()
    details: str = ""
    bug: BugReport | None = None


class ReusableAnswer(NamedTuple):
    """A decision that answers every review which differs from the first in its envelope alone.

    `response` is what is sent, without what it takes from the envelope; the other fields are those
    of `Answer`.
    """

    response: PreparedResponse
    outcome: Outcome
    rule_outcomes: Mapping[str, str]
    failures: Sequence[tuple[str, str]]
    details: str

    def for_envelope(self, envelope: Envelope) -> Answer:
        """The answer to the review in `envelope`."""
        return Answer(
            self.response.for_envelope(envelope),
            envelope,
            self.outcome,
            self.rule_outcomes,
            self.failures,
            self.details,
        )


def answer(
    decider: Decider,
    route: Route,
    body: bytes,
    today: datetime.date,
    steps: StepLimit | None = None,
) -> Answer:
    """The answer to the review in `body`.

    MalformedReviewError if there is none; MemoryError. If `steps` is given, TooManyStepsError if it
    runs out, and TooDeepError if only the slow decoder could read the body. A bug of gpuward is
    reported in the answer.
    """
    review = decode(body) if steps is None else decode_fast(body)
    decide = decider.mutate if route.webhook == "mutate" else decider.validate
    try:
        decision = decide(review, route.mode, today, steps)
        return encode_answer(review, route, decision)
    except (TooManyStepsError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  # a bug in gpuward must not refuse an object
        decision = _internal_error(route, denies=decider.denies_on_failure)
        decision = decider.with_contact(decision)
        return encode_answer(review, route, decision)._replace(bug=bug_of(error))


def encode_answer(review: AdmissionReview, route: Route, decision: Decision) -> Answer:
    """The answer with a `decision` about `review`."""
    return reusable_answer(route, decision).for_envelope(envelope_of(review))


def with_warning(found: Answer, text: str) -> Answer:
    """The answer with one more warning."""
    review = CODEC.loads(found.body)
    review["response"].setdefault("warnings", []).append(text)
    return found._replace(body=CODEC.dumps(review))


def reusable_answer(route: Route, decision: Decision) -> ReusableAnswer:
    """The answer with a `decision`, for any envelope."""
    rule_outcomes = dict(decision.rule_outcomes)
    # The text after the colon may quote the object.
    failures = [(failure.rule, failure.error.partition(":")[0]) for failure in decision.failures]
    details = ""
    if _is_logged(decision, route.mode):
        logged = {
            "path": route.webhook,
            "mode": route.mode.word,
            "rules": rule_outcomes,
            "reasons": [
                {"rule": rule, "family": family, "container": shorten_name(container), "path": path}
                for rule, family, container, path in decision.reasons
            ],
            "failures": [f"{rule}: {error}" for rule, error in failures],
        }
        details = CODEC.dumps(logged).decode()
    response = PreparedResponse(decision)
    return ReusableAnswer(response, decision.outcome, rule_outcomes, failures, details)


def _is_logged(decision: Decision, mode: Action) -> bool:
    """Return whether a decision is logged: if it changed something, or in mode deny would have."""
    if decision.failures or decision.outcome in {"denied", "fixed", "not-evaluated", "excepted"}:
        return True
    return mode is not Action.DENY and decision.outcome in {"warned", "audited"}


def logged_names(envelope: Envelope, user: str) -> dict[str, str | bool]:
    """The names in `envelope` for the log, with `user` in place of the name of the user.

    Each is cut to the length that a name may have.
    """
    names = {
        "uid": envelope.uid,
        "namespace": envelope.namespace,
        "kind": envelope.kind,
        "resource": envelope.resource,
        "name": envelope.name,
        "generate_name": envelope.generate_name,
        "owner_kind": envelope.owner_kind,
        "owner_name": envelope.owner_name,
        "user": user,
        "operation": envelope.operation,
    }
    if max(map(len, names.values())) > MAX_NAME_CHARACTERS:
        names = {field: shorten_name(name) for field, name in names.items()}
    return {**names, "dry_run": envelope.dry_run}


def bug_of(error: BaseException) -> BugReport:
    """Return the fields that are logged about `error`."""
    return BugReport(type(error).__name__, _frames(error.__traceback__))


def shorten_name(text: str) -> str:
    """`text`, a name from a request, cut to the length that a name may have."""
    return text if len(text) <= MAX_NAME_CHARACTERS else text[: MAX_NAME_CHARACTERS - 1] + "…"


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _internal_error(route: Route, *, denies: bool) -> Decision:
    """The decision where a bug prevented one.

    The validating webhook refuses the object if the policy asks for that. Otherwise it passes.
    """
    if denies and route.webhook == "validate" and route.mode is Action.DENY:
        message = f"{INTERNAL_ERROR}; the policy says onRuleError: deny"
        return Decision("denied", allowed=False, message=message)
    if route.mode is Action.AUDIT:  # this mode shows nothing to users
        return Decision("audited")
    return Decision("warned", warnings=(INTERNAL_ERROR,))
