"""Start the server, reload its policy and certificate, and stop it without losing a request.

To stop, the server reports "not ready" and goes on answering, but asks every caller to open another
connection next time. It waits until the cluster sends it no more requests, stops accepting
connections and closes idle ones. A request that arrives meanwhile is answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

from certs.serving import ServingCertificate
from webhook.reload.certificate import CertificateReloader
from webhook.reload.policy import PolicyReloader
from webhook.server.handlers import ProbeHandler, WebhookHandler
from webhook.server.listener import HttpServer, Listener, http_server, listening_socket
from webhook.settings import Limits, ServerSettings
from webhook.telemetry.log import Log, counting_logger, pseudonym_of_user
from webhook.telemetry.metrics import Metrics, ServerState, build_info

# The time that the last accepted connection has for its first request.
FIRST_REQUEST_SECONDS = 1.0
_PROBE_LIMITS = Limits(connections=64, keep_alive_seconds=75.0, read_seconds=1.0)


class WebhookServer:
    """The running server. The policy must be loaded already; the certificate may come later."""

    def __init__(
        self,
        settings: ServerSettings,
        policy: PolicyReloader,
        certificate: ServingCertificate,
        log: Log,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._certificate = certificate
        self._certificate_reloader = CertificateReloader(certificate, log)
        self._log = log
        self._build = build_info()
        self.metrics = Metrics(settings.counted_namespaces)
        shown_user = str if settings.log_user_names else pseudonym_of_user
        self.handler = WebhookHandler(
            policy, self.metrics, log, settings.limits, shown_user=shown_user
        )
        self._probes = ProbeHandler(self.metrics, self.not_ready_reason, lambda: policy.last_error)
        self._listeners: list[Listener] = []
        self._servers: list[HttpServer] = []
        self._reloading: asyncio.Task[None] | None = None
        self._drain_requested = asyncio.Event()
        self.address = ""
        """Where the server answers reviews, as HOST:PORT."""
        self.metrics_address = ""
        """Where the server answers probes and scrapes, as HOST:PORT."""

    def not_ready_reason(self) -> str:
        """Return why no reviews should be sent here; empty if they may be."""
        if self.handler.draining:
            return "draining"
        if not self._policy.is_loaded:
            return "no policy is loaded"
        if not self._certificate.is_ready:
            return "no certificate is loaded"
        return ""

    async def start(self) -> None:
        """Start to listen; AddressError if that is impossible."""
        settings = self._settings
        await self.reload()
        sockets = [listening_socket(settings.listen)]
        try:
            sockets.append(listening_socket(settings.metrics_listen))
        except ValueError:
            sockets[0].close()
            raise
        self.address, self.metrics_address = (_host_and_port(s.getsockname()) for s in sockets)
        not_http = counting_logger(lambda: self.metrics.count_http_error("not_http"))
        for listening, handle, tls, limits in (
            (sockets[0], self.handler.handle, self._certificate.context, settings.limits),
            (sockets[1], self._probes.handle, None, _PROBE_LIMITS),
        ):
            server = http_server(handle, limits, not_http)
            self._servers.append(server)
            on_rejected = self.metrics.count_rejected_connection
            self._listeners.append(Listener(server, listening, tls, limits, on_rejected))
        self.metrics.add_state(self._state)
        self.metrics.add_exceptions(lambda: self._policy.active.exceptions)
        for listener in self._listeners:
            listener.start()
        self._reloading = asyncio.create_task(self._reload_periodically())

    def begin_drain(self) -> None:
        """Start to drain; `run` returns when that is done."""
        self.handler.draining = True
        self._drain_requested.set()

    async def run(self) -> None:
        """Serve until `begin_drain` is called, then drain and close."""
        await self._drain_requested.wait()
        self._log.write("info", "draining", seconds=self._settings.drain_seconds)
        await asyncio.sleep(self._settings.drain_seconds)
        await self.close()
        self._log.write("info", "stopped")

    async def close(self) -> None:
        """Stop accepting, answer what has arrived, close idle connections. The probes go last."""
        self.handler.draining = True
        for listener, server in zip(self._listeners, self._servers, strict=True):
            listener.stop()
            await self._wait_for_connections(listener)
            server.pre_shutdown()
            await server.shutdown(self._settings.limits.shutdown_seconds)
        self.handler.evaluator.close()
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.wait([self._reloading])

    async def reload(self) -> None:
        """Read the policy and the certificate once, and log what changed."""
        change = await asyncio.to_thread(self._policy.reload)
        if change == "refused":
            error = self._policy.last_error
            self._log.write("error", "policy refused", error=error, active=self._digest())
        elif change:
            self._log.write("info", f"policy {change}", digest=self._digest())
        if self._policy.gpu_exceptions is not None:
            count = len(self._policy.active.source.gpu_exceptions)
            self._policy.gpu_exceptions.log_changes(self._log, count)
        if self._policy.inventory is not None:
            self._policy.inventory.log_changes(self._log)
        loaded = await asyncio.to_thread(self._certificate_reloader.reload)
        self._certificate_reloader.log_changes(loaded=loaded)

    async def _reload_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._settings.reload_seconds)
            try:
                await self.reload()
            except Exception as error:  # noqa: BLE001  # the next attempt makes up for a failed one
                self._log.write_internal_error("reload failed", error)

    async def _wait_for_connections(self, listener: Listener) -> None:
        """Wait, for a limited time, until open connections have sent their requests."""
        limits = self._settings.limits
        try:
            async with asyncio.timeout(limits.read_seconds + limits.shutdown_seconds):
                await listener.wait_for_handshakes()
                if listener.connection_count:
                    await asyncio.sleep(min(FIRST_REQUEST_SECONDS, self._settings.drain_seconds))
                await self.handler.body_reader.wait_until_drained()
        except TimeoutError:
            self._log.write("warning", "drain timed out")

    def _digest(self) -> str:
        return self._policy.active.digest if self._policy.is_loaded else ""

    def _state(self) -> ServerState:
        policy, certificate = self._policy, self._certificate
        body_reader = self.handler.body_reader
        until = certificate.not_after
        cache = self.handler.cache
        return ServerState(
            policy_valid=policy.is_loaded and not policy.last_error,
            policy_since=policy.active.since if policy.is_loaded else 0.0,
            policy_digest=self._digest(),
            build=self._build,
            policy_loads=policy.loads,
            policy_failures=policy.failures,
            gpu_exceptions=len(policy.active.source.gpu_exceptions) if policy.is_loaded else 0,
            gpu_exceptions_valid=policy.gpu_exceptions is None or policy.gpu_exceptions.is_valid,
            inventory_objects=len(policy.active.source.inventory) if policy.is_loaded else 0,
            inventory_valid=policy.inventory is None or policy.inventory.is_valid,
            certificate_expiry=until.timestamp() if until else None,
            certificate_seconds=certificate.expiry_seconds(),
            certificate_failures=certificate.failures,
            connections=self._listeners[0].connection_count,
            waiting=body_reader.waiting,
            reserved_large_body_bytes=body_reader.reserved_large_body_bytes,
            large_reviews=self.handler.evaluator.waiting,
            ended_workers=self.handler.evaluator.ended_workers,
            cache_hits=cache.hits if cache else 0,
            cache_misses=cache.misses if cache else 0,
            cache_bytes=cache.kept_bytes if cache else 0,
            dropped_log_lines=self._log.dropped_lines,
            draining=self.handler.draining,
        )


def _host_and_port(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
