"""Answer the API server's reviews.

An HTTP error means that the request was wrong or came at a wrong time. The refusal of a user's
object is an ordinary response with status 200.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

from aiohttp.web import BaseRequest, Response
from multidict import CIMultiDict

from registration.routes import ROUTES, Route
from rules.base.json_access import as_object, as_text
from rules.finding import Action
from webhook.admission.decision import Decision
from webhook.admission.review import AdmissionReview, MalformedReviewError, decode, encode
from webhook.reload.policy import ActivePolicy, PolicyReloader
from webhook.server.limits import BodyReader, HttpError, Limits
from webhook.server.responses import error_response
from webhook.telemetry.log import Log, shorten
from webhook.telemetry.metrics import Metrics

_JSON = CIMultiDict({"Content-Type": "application/json", "Server": "gpuward"})
_INTERNAL_ERROR = "gpuward could not evaluate this object; that is a bug in gpuward, see its log"


def today() -> datetime.date:
    """The date, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC).date()


class WebhookHandler:
    """Answers every request on the TLS port."""

    def __init__(
        self,
        policy: PolicyReloader,
        metrics: Metrics,
        log: Log,
        limits: Limits,
        day: Callable[[], datetime.date] = today,
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._log = log
        self._day = day
        self.body_reader = BodyReader(limits)
        self.draining = False
        """Whether every response asks the caller to open another connection next time."""

    async def handle(self, request: BaseRequest) -> Response:
        """The response to `request`; raises nothing."""
        try:
            response = await self._respond(request)
        except HttpError as error:
            self._metrics.count_http_error(error.reason)
            response = error_response(error)
        except Exception as error:  # noqa: BLE001  # the caller must not see details of our bugs
            self._metrics.count_internal_error()
            self._log.internal_error("not answered", error)
            response = error_response(HttpError(500, "internal", "gpuward failed"))
        if self.draining:
            response.force_close()
        return response

    async def _respond(self, request: BaseRequest) -> Response:
        route = ROUTES.get(request.path)
        if route is None:
            raise HttpError(404, "path", "paths are /mutate/MODE and /validate/MODE")
        if request.method != "POST":
            raise HttpError(405, "method", "reviews are sent with POST", {"Allow": "POST"})
        body = await self.body_reader.read(request)
        started = time.perf_counter()
        review = self._decode(body)
        decision, encoded = self._decide(route, review)
        seconds = time.perf_counter() - started
        self._metrics.count_review(route, decision, seconds)
        if _should_log(decision, route.mode):
            self._log_decision(route, review, decision, seconds)
        return Response(body=encoded, headers=_JSON)

    def _decode(self, body: bytes) -> AdmissionReview:
        try:
            return decode(body)
        except MalformedReviewError as error:
            raise HttpError(400, "malformed", str(error)) from error
        except Exception as error:
            self._metrics.count_internal_error()
            self._log.internal_error("not decoded", error)
            raise HttpError(400, "malformed", "the body cannot be read") from error

    def _decide(self, route: Route, review: AdmissionReview) -> tuple[Decision, bytes]:
        active = self._policy.active
        decider = active.decider
        decide = decider.mutate if route.webhook == "mutate" else decider.validate
        try:
            decision = decide(review, route.mode, self._day())
            return decision, encode(review, decision)
        except Exception as error:  # noqa: BLE001  # a bug in gpuward must not refuse an object
            self._metrics.count_internal_error()
            uid = shorten(review.uid)
            self._log.internal_error("not evaluated", error, uid=uid, path=route.webhook)
        decision = _internal_error(route, active)
        return decision, encode(review, decision)

    def _log_decision(
        self, route: Route, review: AdmissionReview, decision: Decision, seconds: float
    ) -> None:
        metadata = as_object(as_object(review.object).get("metadata"))
        self._log.write(
            "error" if decision.failures else "info",
            decision.outcome,
            uid=shorten(review.uid),
            namespace=shorten(review.namespace),
            kind=shorten(review.kind),
            resource=shorten(review.resource),
            name=shorten(review.name),
            generate_name=shorten(as_text(metadata.get("generateName"))),
            user=shorten(review.user),
            operation=shorten(review.operation),
            dry_run=review.dry_run,
            path=route.webhook,
            mode=route.mode.word,
            rules=dict(decision.rule_outcomes),
            # The text after the colon may quote the object.
            failures=[f"{f.rule}: {f.error.partition(':')[0]}" for f in decision.failures],
            duration_ms=round(seconds * 1000, 3),
        )


def _internal_error(route: Route, active: ActivePolicy) -> Decision:
    """The decision where a bug prevented one.

    The validating webhook refuses the object if the policy asks for that. Otherwise it passes.
    """
    if active.denies_on_failure and route.webhook == "validate" and route.mode is Action.DENY:
        message = f"{_INTERNAL_ERROR}; the policy says onRuleError: deny"
        return Decision("denied", allowed=False, message=message)
    if route.mode is Action.AUDIT:  # this mode shows nothing to users
        return Decision("audited")
    return Decision("warned", warnings=(_INTERNAL_ERROR,))


def _should_log(decision: Decision, mode: Action) -> bool:
    """Whether a decision is logged: if it changed something, or in mode deny would have."""
    if decision.failures or decision.outcome in {"denied", "fixed", "not-evaluated", "excepted"}:
        return True
    return mode is not Action.DENY and decision.outcome in {"warned", "audited"}
