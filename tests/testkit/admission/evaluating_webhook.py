"""A webhook that evaluates each pod by a policy of its own, and records the requests.

The pod's name selects the policy. The response is byte for byte that of the server; only the
choice of the policy differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from rules.finding import Action
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.pki import KeyPairFiles
from tests.testkit.https_server import Answer, Request, https_server
from webhook.admission.answer import encode
from webhook.admission.decider import Decider
from webhook.admission.decision import IGNORED_DECISION, Decision
from webhook.admission.review import AdmissionReview, decode


class RecordedRequest(NamedTuple):
    """One request and the decision about it."""

    review: AdmissionReview
    decision: Decision


class EvaluatingWebhook:
    """The deciders by pod name, and the requests that the webhook received."""

    def __init__(self, deciders: Mapping[str, Decider]) -> None:
        self._deciders = deciders
        #: The last request about each pod and each of its subresources
        self.requests: dict[tuple[str, str], RecordedRequest] = {}
        self.url = ""

    def respond(self, request: Request) -> Answer:
        """The response to one request: the mutating path evaluates, the other one allows."""
        review = decode(request.body)
        decider = self._deciders.get(review.name)
        decision = IGNORED_DECISION
        if decider is not None and request.path.startswith("/mutate"):
            decision = decider.mutate(review, Action.DENY, TODAY)
            # Decoded again, so that the recorded object is not the one that the product works on.
            recorded = RecordedRequest(decode(request.body), decision)
            self.requests[review.name, review.resource] = recorded
        return Answer(encode(review, decision))


@contextmanager
def evaluating_webhook(
    deciders: Mapping[str, Decider], pair: KeyPairFiles
) -> Iterator[EvaluatingWebhook]:
    """Serve at `url` until the end of the block."""
    state = EvaluatingWebhook(deciders)
    with https_server(state.respond, pair.server_context()) as port:
        state.url = f"https://127.0.0.1:{port}"
        yield state


# Fields of a pod that a fix sets to false. That means the same as no field.
_OFF = {"hostIPC": False, "hostNetwork": False, "hostPID": False}


def content(pod: Any) -> Any:
    """The parts of a stored pod that users write, without what the API server adds."""
    metadata = {key: pod["metadata"].get(key) for key in ("annotations", "labels")}
    return _stored({"metadata": metadata, "spec": pod["spec"]})


def _stored(value: Any) -> Any:
    """`value` without empty values, and with quantities as text."""
    if isinstance(value, list):
        return [_stored(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item_value in value.items():
        inner = _stored(item_value)
        if key in ("limits", "requests"):
            inner = {name: str(amount) for name, amount in inner.items()}
        if inner not in (None, [], {}) and (key, inner) not in _OFF.items():
            result[key] = inner
    return result
