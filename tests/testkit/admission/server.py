"""A server in this process, and callers that connect to it over real sockets."""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from certs.authority import new_authority, sign_leaf
from certs.serving import ServingCertificate
from tests.testkit.admission.caller import TIMEOUT_SECONDS, Caller, Reply
from webhook.reload.policy import PolicyReloader
from webhook.server.lifecycle import WebhookServer
from webhook.settings import Limits, ServerSettings
from webhook.telemetry.log import Log

NAMES = ("localhost", "127.0.0.1")
ANY_PORT = "127.0.0.1:0"


PATIENT = "/validate/deny?timeout=30s"
"""A path for tests in which the second process takes part, which may start slowly."""


def write_certificate(folder: Path) -> Path:
    """Write a certificate of a new authority into `folder`; return the authority's file."""
    now = datetime.datetime.now(tz=datetime.UTC)
    authority = new_authority(NAMES, now)
    leaf = sign_leaf(authority, NAMES, now)
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    file = folder / "ca.crt"
    file.write_bytes(authority.certificate_pem)
    return file


class Samples:
    """The samples of one scrape."""

    def __init__(self, samples: dict[tuple[str, frozenset[str]], float]) -> None:
        self._samples = samples

    def __call__(self, name: str, *labels: str) -> float | None:
        """The sample of `gpuward_NAME` with these label values, in any order."""
        return self._samples.get((f"gpuward_{name}", frozenset(labels)))

    def labels(self, name: str = "") -> set[str]:
        """All label values of the metrics whose name contains `name`."""
        found = self._samples.items()
        return {value for (n, values), _ in found for value in values if name in n}


class RunningServer:
    """A server in this process."""

    def __init__(self, service: WebhookServer, log: io.BytesIO, authority: Path) -> None:
        self.service = service
        self._log = log
        self.tls = ssl.create_default_context(cafile=str(authority))
        self._callers: list[Caller] = []

    async def connect(self, source: str = "127.0.0.1") -> Caller:
        """Open a connection for reviews from the address `source`."""
        return await self._open(self.service.address, self.tls, source)

    async def connect_without_tls(self) -> Caller:
        """Open a connection for reviews without a TLS handshake."""
        return await self._open(self.service.address, None)

    async def _open(
        self, address: str, tls: ssl.SSLContext | None, source: str = "127.0.0.1"
    ) -> Caller:
        host, port = address.rsplit(":", 1)
        opened = await asyncio.open_connection(host, int(port), ssl=tls, local_addr=(source, 0))
        caller = Caller(*opened)
        self._callers.append(caller)
        return caller

    async def probe(self, path: str) -> Reply:
        """Send a GET request to the plain HTTP port."""
        caller = await self._open(self.service.metrics_address, None)
        await caller.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        reply = await caller.reply()
        await caller.close()
        return reply

    async def metrics(self) -> Samples:
        """The samples of a scrape of /metrics."""
        text = (await self.probe("/metrics")).body.decode()
        families = [*text_string_to_metric_families(text)]
        return Samples(
            {
                (sample.name, frozenset(sample.labels.values())): sample.value
                for family in families
                for sample in family.samples
            }
        )

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    async def close(self) -> None:
        """Close every connection and then the server."""
        for caller in self._callers:
            await caller.close()
        await self.service.close()


Serve = Callable[..., Awaitable[RunningServer]]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Serve]:
    """Start servers with certificates in `folder`; they are stopped at the end."""
    started: list[RunningServer] = []

    async def start(
        policy: PolicyReloader | None = None,
        certificate: Path | None = None,
        level: str = "info",
        client_ca: Path | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **limits: Any,
    ) -> RunningServer:
        authority = write_certificate(folder / "certificate")
        if policy is None:
            policy = PolicyReloader(None)
            policy.load()
        stream = io.BytesIO()
        served = ServingCertificate(
            str(certificate or authority.parent),
            "localhost",
            client_ca=str(client_ca) if client_ca else None,
        )
        given = ServerSettings(ANY_PORT, ANY_PORT, 0.0, 3600.0, Limits(**limits), **settings)
        service = WebhookServer(given, policy, served, Log(stream, level))
        await service.start()
        running = RunningServer(service, stream, authority)
        started.append(running)
        return running

    yield start
    for running in started:
        await running.close()


async def wait_until(condition: Callable[[], bool]) -> None:
    """Return when `condition()`; TimeoutError if that does not happen in time."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.001)
