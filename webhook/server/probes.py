"""Answer probes and scrapes on the plain HTTP port: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp.web import BaseRequest, Response
from prometheus_client.aiohttp import make_aiohttp_handler

from webhook.server.limits import HttpError
from webhook.server.responses import error_response, text_response
from webhook.telemetry.metrics import Metrics


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

    async def handle(self, request: BaseRequest) -> Response:
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
