"""Answer the kubelet's probes and Prometheus: the status of a process that runs in a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve_status(
    port: int, *, alive: Callable[[], bool], metrics: Callable[[], bytes]
) -> ThreadingHTTPServer:
    """Serve /healthz and /metrics on `port` of every address, in a thread, until `shutdown()`.

    `metrics` returns Prometheus' text format. Raises OSError.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds for a request to arrive

        def do_GET(self) -> None:
            """Answer a probe or a scrape."""
            responses: dict[str, Callable[[], tuple[int, bytes]]] = {
                "/healthz": lambda: (200, b"ok\n") if alive() else (503, b"stuck\n"),
                "/metrics": lambda: (200, metrics()),
            }
            code, body = responses.get(self.path, lambda: (404, b"not found\n"))()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Do not log probes."""

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server
