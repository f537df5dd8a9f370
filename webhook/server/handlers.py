"""Answer the API server's reviews.

An HTTP error means that the request was wrong or came at a wrong time. The refusal of a user's
object is an ordinary response with status 200.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from aiohttp.web import BaseRequest, Response
from multidict import CIMultiDict
from prometheus_client.aiohttp import make_aiohttp_handler

from rules.engine.bounds import StepLimit, TooManyStepsError
from webhook.admission.answer import (
    Answer,
    answer,
    bug_of,
    encode_answer,
    logged_names,
    shorten_name,
)
from webhook.admission.callers import asks_for_caller, with_caller
from webhook.admission.decider import Decider
from webhook.admission.enforcement import TIMEOUT_REASON, not_evaluated_decision
from webhook.admission.review import MalformedReviewError, TooDeepError, decode_head
from webhook.evaluator.evaluator import CongestionError, Evaluator, NotEvaluatedError
from webhook.evaluator.turns import EvaluationTask, Tenant
from webhook.evaluator.worker import EvaluatorError
from webhook.registration import ROUTES, Route
from webhook.reload.policy import PolicyReloader
from webhook.server.limits import (
    BodyReader,
    HttpError,
    caller_of,
    sharer_of,
    too_many,
)
from webhook.server.listener import TakeTurn
from webhook.settings import Limits
from webhook.telemetry.log import Log, pseudonym_of_user
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from webhook.replica_cache import ReplicaCache

_PLAIN_TEXT_HEADERS = {"Content-Type": "text/plain; charset=utf-8", "Server": "gpuward"}
# After these the rest of the body is still on the connection.
_NOT_REUSABLE = (408, 411, 413)


def text_response(text: str, status: int = 200) -> Response:
    """A response with one line of text."""
    return Response(body=f"{text}\n".encode(), status=status, headers=_PLAIN_TEXT_HEADERS)


def error_response(error: HttpError) -> Response:
    """The response for `error`; the connection is closed if it cannot be used again."""
    headers = {**_PLAIN_TEXT_HEADERS, **error.headers}
    response = Response(body=f"{error}\n".encode(), status=error.status, headers=headers)
    if error.status in _NOT_REUSABLE:
        response.force_close()
    return response


_JSON_HEADERS = CIMultiDict({"Content-Type": "application/json", "Server": "gpuward"})
# An API server says how long it waits: `?timeout=3s`, in whole seconds.
_TIMEOUT_PATTERN = re.compile("([0-9]{1,3})s")
# The part of that time after which the answer should be on its way.
_USABLE_SHARE_OF_TIMEOUT = 0.8


def utc_today() -> datetime.date:
    """The date, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC).date()


def new_replica_cache(limits: Limits) -> ReplicaCache | None:
    """A cache for small reviews; None if msgspec, an extra, is not installed."""
    try:
        from webhook.replica_cache import ReplicaCache  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return ReplicaCache(limits.small_review_objects, limits.small_review_steps)


class WebhookHandler:
    """Answers every request on the TLS port."""

    def __init__(
        self,
        policy: PolicyReloader,
        metrics: Metrics,
        log: Log,
        limits: Limits,
        day: Callable[[], datetime.date] = utc_today,
        shown_user: Callable[[str], str] = pseudonym_of_user,
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._log = log
        self._limits = limits
        self._day = day
        self._shown_user = shown_user
        self.body_reader = BodyReader(limits)
        self.evaluator = Evaluator()
        self.cache = new_replica_cache(limits)
        self.draining = False
        """Whether every response asks the caller to open another connection next time."""

    async def handle(self, request: BaseRequest, take_turn: TakeTurn) -> Response:
        """The response to `request`; raises nothing.

        `take_turn` is awaited before the review is evaluated, if the body has not arrived yet.
        """
        try:
            response = await self._respond(request, take_turn)
        except HttpError as error:
            self._metrics.count_http_error(error.reason)
            response = error_response(error)
        except Exception as error:  # noqa: BLE001  # the caller must not see details of our bugs
            self._metrics.count_internal_error()
            bug = error.bug if isinstance(error, EvaluatorError) else bug_of(error)
            self._log.write_bug("not answered", bug)
            response = error_response(HttpError(500, "internal", "gpuward failed"))
        if self.draining:
            response.force_close()
        return response

    async def _respond(self, request: BaseRequest, take_turn: TakeTurn) -> Response:
        arrived = time.monotonic()
        route = ROUTES.get(request.path)
        if route is None:
            raise HttpError(404, "path", "paths are /mutate/MODE and /validate/MODE")
        if request.method != "POST":
            raise HttpError(405, "method", "reviews are sent with POST", {"Allow": "POST"})
        has_arrived = request.content.is_eof()
        body = await self.body_reader.read(request)
        if not has_arrived:
            await take_turn()
        started = time.monotonic()
        try:
            found = self._answer_at_once(request.path, route, body)
            if found is None:
                deadline = arrived + _seconds_to_answer(request, self._limits)
                found = await self._answer_in_worker(
                    request.path, route, body, sharer_of(request.transport), deadline
                )
        except MalformedReviewError as error:
            raise HttpError(400, "malformed", str(error)) from error
        if asks_for_caller(found.envelope):
            found = with_caller(found, caller_of(request.transport))
        self._record(route, found, time.monotonic() - started)
        return Response(body=found.body, headers=_JSON_HEADERS)

    def _answer_at_once(self, path: str, route: Route, body: bytes) -> Answer | None:
        """The answer; None if it would delay other requests."""
        if len(body) > self._limits.small_review_bytes:
            return None
        decider, today = self._policy.active.decider, self._day()
        try:
            found = self._answer_from_cache(decider, today, path, body)
            if found is None and body.count(b"{") <= self._limits.small_review_objects:
                steps = StepLimit(self._limits.small_review_steps)
                found = answer(decider, route, body, today, steps)
        except (TooManyStepsError, TooDeepError):
            return None
        return found

    def _answer_from_cache(
        self, decider: Decider, today: datetime.date, path: str, body: bytes
    ) -> Answer | None:
        """The answer; None if the cache has none. A bug in the cache costs only its advantage."""
        if self.cache is None:
            return None
        try:
            return self.cache.answer(decider, today, path, body)
        except (TooManyStepsError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  # the review is decided without the cache
            self._metrics.count_internal_error()
            self._log.write_bug("cache failed", bug_of(error), path=path)
            return None

    async def _answer_in_worker(
        self, path: str, route: Route, body: bytes, caller: str, deadline: float
    ) -> Answer:
        """The answer of the evaluator; that the object is not evaluated, if it takes too long.

        HttpError if `caller` must try again because of others.
        """
        head = decode_head(body)
        task = EvaluationTask(path, body, self._day(), self._policy.active.source, deadline)
        tenant = Tenant(caller, head.namespace or head.user if head else "")
        try:
            return await self.evaluator.answer(task, tenant)
        except CongestionError as error:
            raise too_many("large_reviews", "large objects are being evaluated") from error
        except NotEvaluatedError as error:
            if head is None:
                raise HttpError(503, "not_evaluated", "this review takes too long") from error
            decision = not_evaluated_decision(head, route.mode, str(error), because=TIMEOUT_REASON)
            decider = self._policy.active.decider
            return encode_answer(head, route, decider.with_contact(decision))

    def _record(self, route: Route, found: Answer, seconds: float) -> None:
        """Count the answer, and log it if it matters."""
        self._metrics.count_review(route, found, seconds)
        if found.bug is not None:
            self._metrics.count_internal_error()
            uid = shorten_name(found.envelope.uid)
            self._log.write_bug("not evaluated", found.bug, uid=uid, path=route.webhook)
        if found.details:
            level = "error" if found.failures else "info"
            user = self._shown_user(found.envelope.user)
            names = logged_names(found.envelope, user)
            fields = {**names, "duration_ms": round(seconds * 1000, 3)}
            self._log.write_prepared(level, found.outcome, fields, found.details)


def _seconds_to_answer(request: BaseRequest, limits: Limits) -> float:
    """Return how many seconds after its arrival a request must be answered."""
    allowed = _TIMEOUT_PATTERN.fullmatch(request.query.get("timeout", ""))
    return float(allowed[1]) * _USABLE_SHARE_OF_TIMEOUT if allowed else limits.answer_seconds


class ProbeHandler:
    """Answers every request on the plain port.

    `not_ready_reason` returns why no reviews should be sent; empty if they may be. `policy_error`
    returns why the policy in the file is not the active one; empty if it is.
    """

    def __init__(
        self,
        metrics: Metrics,
        not_ready_reason: Callable[[], str],
        policy_error: Callable[[], str],
    ) -> None:
        self._scrape = cast(
            "Callable[[BaseRequest], Awaitable[Response]]",
            make_aiohttp_handler(metrics.registry, disable_compression=True),
        )
        self._not_ready_reason = not_ready_reason
        self._policy_error = policy_error

    async def handle(self, request: BaseRequest, _take_turn: TakeTurn) -> Response:
        """The response to `request`."""
        if request.method not in {"GET", "HEAD"}:
            return error_response(HttpError(405, "method", "ask with GET", {"Allow": "GET, HEAD"}))
        if request.path == "/healthz":
            return text_response("ok")
        if request.path == "/readyz":
            return self._readiness()
        if request.path == "/metrics":
            return await self._scrape(request)
        return error_response(HttpError(404, "path", "paths are /healthz, /readyz and /metrics"))

    def _readiness(self) -> Response:
        """Ready also if the policy was refused: another one is active, better than none."""
        if reason := self._not_ready_reason():
            return text_response(f"not ready: {reason}", 503)
        if error := self._policy_error():
            return text_response(f"ready, but the policy in the file is not active: {error}")
        return text_response("ready")
