"""From start to stop: what listens, what is looked at every few seconds, and how to leave.

To leave without losing a call: say "not ready", go on answering but ask every caller to open
another connection next time, wait until the cluster sends nobody here, stop accepting, and
close only what is idle. A call that arrives in between is answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from aiohttp.web import Server

from certs.serving import ServingCertificate
from webhook.certificate_news import CertificateNews
from webhook.limits import Limits
from webhook.listener import Listener, http_server, open_socket
from webhook.log import Log, counted
from webhook.metrics import Metrics
from webhook.policy_file import PolicyFile
from webhook.server import Probes, Webhook
from webhook.state import State

# A connection accepted last is given so long for its first request.
SETTLE_SECONDS = 1.0
_PROBES = Limits(connections=64, keep_alive_seconds=75.0, read_seconds=1.0)


class Settings(NamedTuple):
    """Where to listen, and how fast to leave; addresses as HOST:PORT, times in seconds."""

    listen: str = ":10250"
    metrics_listen: str = ":8080"
    drain_seconds: float = 15.0
    poll_seconds: float = 2.0
    limits: Limits = Limits()


class Service:
    """The running server. The policy must have been loaded; the certificate may come later."""

    def __init__(
        self, settings: Settings, policy: PolicyFile, certificate: ServingCertificate, log: Log
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._certificate = certificate
        self._news = CertificateNews(certificate, log)
        self._log = log
        self.metrics = Metrics()
        self.webhook = Webhook(policy, self.metrics, log, settings.limits)
        self._probes = Probes(self.metrics, self.obstacle)
        self._listeners: list[Listener] = []
        self._servers: list[Server] = []
        self._watching: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        self.address = ""
        """Where reviews are answered, as HOST:PORT."""
        self.metrics_address = ""
        """Where probes and metrics are answered, as HOST:PORT."""

    def obstacle(self) -> str:
        """Why no reviews should be sent here; empty if they may be."""
        if self.webhook.draining:
            return "draining"
        if not self._policy.loaded:
            return "no policy is loaded"
        if not self._certificate.ready:
            return "no certificate is loaded"
        return ""

    async def start(self) -> None:
        """Listen; AddressError if that is impossible."""
        settings = self._settings
        await self.poll()
        sockets = [open_socket(settings.listen)]
        try:
            sockets.append(open_socket(settings.metrics_listen))
        except ValueError:
            sockets[0].close()
            raise
        self.address, self.metrics_address = (_name(s.getsockname()) for s in sockets)
        unreadable = counted(lambda: self.metrics.refused("not_http"))
        for listening, handle, tls, limits in (
            (sockets[0], self.webhook.handle, self._certificate.context, settings.limits),
            (sockets[1], self._probes.handle, None, _PROBES),
        ):
            server = http_server(handle, limits, unreadable)
            self._servers.append(server)
            turned_away = self.metrics.turned_away
            self._listeners.append(Listener(server, listening, tls, limits, turned_away))
        self.metrics.watch(self._state)
        for listener in self._listeners:
            listener.start()
        self._watching = asyncio.create_task(self._watch())

    def leave(self) -> None:
        """Begin to drain; `run` returns when that is done."""
        self.webhook.draining = True
        self._leaving.set()

    async def run(self) -> None:
        """Serve until `leave` is called, and then drain."""
        await self._leaving.wait()
        self._log.write("info", "draining", seconds=self._settings.drain_seconds)
        await asyncio.sleep(self._settings.drain_seconds)
        await self.close()
        self._log.write("info", "stopped")

    async def close(self) -> None:
        """Stop accepting, finish what has begun, close what is idle. Probes go last."""
        self.webhook.draining = True
        for listener, server in zip(self._listeners, self._servers, strict=True):
            listener.stop()
            await self._settled(listener)
            server.pre_shutdown()
            await server.shutdown(self._settings.limits.goodbye_seconds)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def poll(self) -> None:
        """Look at the policy file and the certificate once, and tell what is new."""
        change = await asyncio.to_thread(self._policy.poll)
        if change == "refused":
            error = self._policy.last_error
            self._log.write("error", "policy refused", error=error, in_force=self._digest())
        elif change:
            self._log.write("info", f"policy {change}", digest=self._digest())
        self._news.tell(loaded=await asyncio.to_thread(self._news.reload))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_seconds)
            try:
                await self.poll()
            except Exception as error:  # noqa: BLE001  # a missed look is made up for by the next
                self._log.fault("poll failed", error)

    async def _settled(self, listener: Listener) -> None:
        """Wait, but not for long, until connections have had their say."""
        limits = self._settings.limits
        try:
            async with asyncio.timeout(limits.read_seconds + limits.goodbye_seconds):
                await listener.greeted()
                if listener.connections:
                    await asyncio.sleep(min(SETTLE_SECONDS, self._settings.drain_seconds))
                await self.webhook.gate.emptied()
        except TimeoutError:
            self._log.write("warning", "callers too slow to wait for")

    def _digest(self) -> str:
        return self._policy.acting.digest if self._policy.loaded else ""

    def _state(self) -> State:
        policy, certificate, gate = self._policy, self._certificate, self.webhook.gate
        until = certificate.not_after
        return State(
            policy_valid=policy.loaded and not policy.last_error,
            policy_since=policy.acting.since if policy.loaded else 0.0,
            policy_digest=self._digest(),
            policy_loads=policy.loads,
            policy_refusals=policy.refusals,
            certificate_expiry=until.timestamp() if until else None,
            certificate_seconds=certificate.expiry_seconds(),
            certificate_failures=certificate.failures,
            connections=self._listeners[0].connections,
            waiting=gate.waiting,
            large_bytes=gate.large_bytes,
            draining=self.webhook.draining,
        )


def _name(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
