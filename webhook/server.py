"""What is served: the decisions behind TLS, and the probes and metrics beside it.

HTTP errors mean that the call was wrong or came at the wrong time. A refusal of the user's
object is an answer like any other, with status 200.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp.web import BaseRequest, Response
from multidict import CIMultiDict
from prometheus_client.aiohttp import make_aiohttp_handler

from rules.base.json_access import as_object, as_text
from rules.finding import Action
from webhook.answer import Answer
from webhook.limits import Gate, Limits, Refused
from webhook.log import Log, brief
from webhook.metrics import Metrics
from webhook.policy_file import Acting, PolicyFile
from webhook.review import MalformedReview, Review, decode, encode
from webhook.routes import ROUTES, Route

_JSON = CIMultiDict({"Content-Type": "application/json", "Server": "gpuward"})
_PLAIN = {"Content-Type": "text/plain; charset=utf-8", "Server": "gpuward"}
_NOT_REUSABLE = (408, 413)  # what was not read is still in the way
_APOLOGY = "gpuward could not judge this object; that is a fault of gpuward, see its log"


def today() -> datetime.date:
    """The day, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC).date()


class Webhook:
    """Answers the API server. `handle` is the whole server behind TLS."""

    def __init__(
        self,
        policy: PolicyFile,
        metrics: Metrics,
        log: Log,
        limits: Limits,
        day: Callable[[], datetime.date] = today,
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._log = log
        self._day = day
        self.gate = Gate(limits)
        self.draining = False
        """Whether every answer asks the caller to open another connection next time."""

    async def handle(self, request: BaseRequest) -> Response:
        """The answer to one request, whatever it is."""
        try:
            response = await self._answered(request)
        except Refused as refusal:
            self._metrics.refused(refusal.reason)
            response = _refusal(refusal)
        except Exception as error:  # noqa: BLE001  # nothing of it belongs to the caller
            self._metrics.fault()
            self._log.fault("not answered", error)
            response = _refusal(Refused(500, "fault", "gpuward failed"))
        if self.draining:
            response.force_close()
        return response

    async def _answered(self, request: BaseRequest) -> Response:
        route = ROUTES.get(request.path)
        if route is None:
            raise Refused(404, "path", "paths are /mutate/MODE and /validate/MODE")
        if request.method != "POST":
            raise Refused(405, "method", "reviews are sent with POST", {"Allow": "POST"})
        body = await self.gate.body(request)
        started = time.perf_counter()
        review = self._decoded(body)
        answer, encoded = self._judged(route, review)
        seconds = time.perf_counter() - started
        self._metrics.answered(route, answer, seconds)
        if _is_news(answer, route.mode):
            self._tell(route, review, answer, seconds)
        return Response(body=encoded, headers=_JSON)

    def _decoded(self, body: bytes) -> Review:
        try:
            return decode(body)
        except MalformedReview as error:
            raise Refused(400, "malformed", str(error)) from error
        except Exception as error:  # whatever it was, it is no object of a user
            self._metrics.fault()
            self._log.fault("unreadable", error)
            raise Refused(400, "malformed", "the body cannot be read") from error

    def _judged(self, route: Route, review: Review) -> tuple[Answer, bytes]:
        acting = self._policy.acting
        judge = acting.judge.mutate if route.door == "mutate" else acting.judge.validate
        try:
            answer = judge(review, route.mode, self._day())
            return answer, encode(review, answer)
        except Exception as error:  # noqa: BLE001  # our bug must not become the user's
            self._metrics.fault()
            self._log.fault("not judged", error, uid=brief(review.uid), path=route.door)
        answer = _apology(route, acting)
        return answer, encode(review, answer)

    def _tell(self, route: Route, review: Review, answer: Answer, seconds: float) -> None:
        metadata = as_object(as_object(review.object).get("metadata"))
        self._log.write(
            "error" if answer.failures else "info",
            answer.outcome,
            uid=brief(review.uid),
            namespace=brief(review.namespace),
            kind=brief(review.kind),
            resource=brief(review.resource),
            name=brief(review.name),
            generate_name=brief(as_text(metadata.get("generateName"))),
            user=brief(review.user),
            operation=brief(review.operation),
            dry_run=review.dry_run,
            path=route.door,
            mode=route.mode.word,
            rules=dict(answer.verdicts),
            # What stands behind the colon quotes the object.
            failures=[f"{f.rule}: {f.error.partition(':')[0]}" for f in answer.failures],
            duration_ms=round(seconds * 1000, 3),
        )


class Probes:
    """Answers on the plain port: /healthz, /readyz, /metrics.

    `obstacle` says why no reviews should be sent, empty if they may be.
    """

    def __init__(self, metrics: Metrics, obstacle: Callable[[], str]) -> None:
        self._scrape = cast(
            "Callable[[BaseRequest], Awaitable[Response]]",
            make_aiohttp_handler(metrics.registry, disable_compression=True),
        )
        self._obstacle = obstacle

    async def handle(self, request: BaseRequest) -> Response:
        """The answer to one request."""
        if request.method not in {"GET", "HEAD"}:
            return _refusal(Refused(405, "method", "ask with GET", {"Allow": "GET, HEAD"}))
        if request.path == "/healthz":
            return Response(body=b"ok\n", headers=_PLAIN)
        if request.path == "/readyz":
            why = self._obstacle()
            body = f"not ready: {why}\n" if why else "ready\n"
            return Response(body=body.encode(), status=503 if why else 200, headers=_PLAIN)
        if request.path == "/metrics":
            return await self._scrape(request)
        return _refusal(Refused(404, "path", "paths are /healthz, /readyz and /metrics"))


def _apology(route: Route, acting: Acting) -> Answer:
    """The answer where a bug of ours left none. Only the validating door refuses for failures."""
    if acting.denies_on_failure and route.door == "validate" and route.mode is Action.DENY:
        why = f"{_APOLOGY}; the policy says onRuleError: deny"
        return Answer("denied", allowed=False, message=why)
    if route.mode is Action.AUDIT:  # which never speaks to users
        return Answer("audited")
    return Answer("warned", warnings=(_APOLOGY,))


def _is_news(answer: Answer, mode: Action) -> bool:
    """Whether a decision is worth a line: it changed something, or would have."""
    if answer.failures or answer.outcome in {"denied", "fixed", "unjudged", "excepted"}:
        return True
    return mode is not Action.DENY and answer.outcome in {"warned", "audited"}


def _refusal(refused: Refused) -> Response:
    headers = {**_PLAIN, **refused.headers}
    response = Response(body=f"{refused}\n".encode(), status=refused.status, headers=headers)
    if refused.status in _NOT_REUSABLE:
        response.force_close()
    return response
