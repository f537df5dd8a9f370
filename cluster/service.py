"""Run a program in a cluster until it is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from cluster.json_log import log_as_json
from cluster.protocols import ClusterError
from cluster.status_server import serve_status
from terminal import write_error


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
