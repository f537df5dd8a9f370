"""Run a program in a cluster until it is told to stop: its options, log, probes and metrics."""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from structlog.typing import EventDict

from cluster.api.errors import ClusterError
from terminal import write_error

# Answer the kubelet's probes and Prometheus: the status of a process that runs in a cluster.


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


# The log of processes that run in a cluster: JSON lines with the fields of the webhook's log.


def log_as_json() -> None:
    """Log JSON lines to standard error: `time`, `level` and `event`, then all other fields."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _order_fields,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def _order_fields(_logger: object, _method: str, entry: EventDict) -> EventDict:
    now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
    return {"time": now, "level": entry.pop("level"), "event": entry.pop("event"), **entry}


# Run a program in a cluster until it is told to stop.


class Service(NamedTuple):
    """A program that runs until an event is set.

    - `run`: does the work; returns soon after the event is set.
    - `alive`: whether it makes progress, for the kubelet's probe.
    - `metrics`: Prometheus' text format.
    """

    run: Callable[[threading.Event], None]
    alive: Callable[[], bool]
    metrics: Callable[[], bytes]


def run_service(make: Callable[[], Service], status_port: int) -> None:
    """Run what `make` returns until SIGTERM or SIGINT, and serve /healthz and /metrics meanwhile.

    It logs as JSON. Raises what `make` raises, and OSError if the port is not free.
    """
    log_as_json()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    service = make()
    server = serve_status(status_port, alive=service.alive, metrics=service.metrics)
    service.run(stop)
    server.shutdown()
    server.server_close()


def run_or_report(
    make: Callable[[], Service], status_port: int, command: str, *, failed: int = 1
) -> int:
    """`run_service`, for a command; the exit status.

    That is `failed` with a line on standard error if no API server or no port can be used.
    """
    try:
        run_service(make, status_port)
    except (ClusterError, OSError) as error:
        write_error(f"gpuward {command}", error)
        return failed
    return 0


def metrics_of(collector: Collector) -> bytes:
    """The metrics of `collector` in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


def repeat(action: Callable[[], object], seconds: float) -> Callable[[threading.Event], None]:
    """A `run` that calls `action` again and again, with `seconds` between two calls."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            action()
            stop.wait(seconds)

    return run


# Durations as options of the command line.

_MAX_SECONDS = 86_400  # a day


def seconds(text: str) -> float:
    """The number of seconds in `text`, at most a day; for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MAX_SECONDS:  # also refuses what is no number
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds")
    return number


def seconds_between(text: str) -> float:
    """The same, but at least one second: the time between two repetitions."""
    number = seconds(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1 second")
    return number


# The options of every program that runs in a cluster until it is told to stop.

_MAX_PORT = 65_535
STATUS_PORT = 8081
"""Where /healthz and /metrics are, unless somebody says otherwise."""


def port(text: str) -> int:
    """The number of a port in `text`; for argparse. The system chooses one for 0."""
    number = int(text)
    if not 0 <= number <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text}: expected a port, up to {_MAX_PORT}")
    return number


def add_service_options(parser: argparse.ArgumentParser, interval: float, what: str) -> None:
    """Add the options; by default `interval` seconds are between two of `what`, a plural."""
    parser.add_argument("--kubeconfig", metavar="FILE", help="The kubeconfig file to use.")
    parser.add_argument(
        "--status-port",
        metavar="PORT",
        type=port,
        default=STATUS_PORT,
        help=f"Port of /healthz and /metrics. The default is {STATUS_PORT}.",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds_between,
        default=interval,
        help=f"Seconds between two {what}, at least 1. The default is {interval:g}.",
    )
