"""How the controller is, over HTTP: /healthz and /metrics."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509

from certs.pairs import Pair, fingerprint
from certs.store import Stored

_METRICS = (
    ("leader", "gauge", "1 if this process holds the Lease."),
    ("rounds_total", "counter", "Rounds that were finished, also those that failed."),
    ("failed_rounds_total", "counter", "Rounds in which Kubernetes refused or was not there."),
    ("bundle_written_total", "counter", "Times that a configuration lacked the bundle."),
    ("authorities", "gauge", "Authorities in the bundle; more than 1 while they are rotated."),
    ("authority_expiry_seconds", "gauge", "Until the signing authority expires."),
    ("certificate_expiry_seconds", "gauge", "Until the newest serving certificate expires."),
    ("replicas", "gauge", "Addresses behind the headless Service."),
    ("replicas_current", "gauge", "Of these, serving the newest certificate."),
)


class Status:
    """What the last rounds saw.

    `patience` is for how many seconds no round may end before the process counts as stuck.
    """

    def __init__(
        self,
        now: Callable[[], datetime.datetime],
        monotonic: Callable[[], float],
        patience: float,
    ) -> None:
        self._now = now
        self._monotonic = monotonic
        self._patience = patience
        self._finished_at = monotonic()
        self._rounds = self._failed = 0
        self._stored = Stored()
        self._replicas: Mapping[str, str | None] | None = None
        self.leads = False
        self.published = 0

    def saw(self, stored: Stored, replicas: Mapping[str, str | None] | None) -> None:
        """Note what is stored, and what the replicas serve."""
        self._stored, self._replicas = stored, replicas

    def finish(self, *, failed: bool) -> None:
        """Note the end of a round."""
        self._rounds += 1
        self._failed += failed
        self._finished_at = self._monotonic()

    @property
    def alive(self) -> bool:
        """Whether rounds still end, well or badly: a restart does not cure a refusal."""
        return self._monotonic() - self._finished_at <= self._patience

    def metrics(self) -> str:
        """The text that Prometheus reads; what is not known is left out."""
        values = self._values()
        lines = []
        for name, kind, text in _METRICS:
            if (value := values[name]) is not None:
                full = f"gpuward_certs_{name}"
                lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {value}"]
        return "\n".join(lines) + "\n"

    def _values(self) -> dict[str, float | None]:
        stored, replicas = self._stored, self._replicas
        wanted = fingerprint(stored.leaf.certificate) if stored.leaf else None
        current = None
        if replicas is not None and wanted is not None:
            current = sum(served == wanted for served in replicas.values())
        return {
            "leader": int(self.leads),
            "rounds_total": self._rounds,
            "failed_rounds_total": self._failed,
            "bundle_written_total": self.published,
            "authorities": len(stored.trusted),
            "authority_expiry_seconds": self._until(stored.signer),
            "certificate_expiry_seconds": self._until(stored.leaf),
            "replicas": None if replicas is None else len(replicas),
            "replicas_current": current,
        }

    def _until(self, pair: Pair | None) -> float | None:
        if pair is None:
            return None
        certificate: x509.Certificate = pair.certificate
        return (certificate.not_valid_after_utc - self._now()).total_seconds()


def serve(status: Status, port: int) -> ThreadingHTTPServer:
    """Answer on `port` of every address, in a thread, until `shutdown()`. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds for a request to arrive

        def do_GET(self) -> None:
            """Answer a probe or a scrape."""
            answers: dict[str, Callable[[], tuple[int, str]]] = {
                "/healthz": lambda: (200, "ok\n") if status.alive else (503, "stuck\n"),
                "/metrics": lambda: (200, status.metrics()),
            }
            code, text = answers.get(self.path, lambda: (404, "not found\n"))()
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes are not worth a line."""

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server
