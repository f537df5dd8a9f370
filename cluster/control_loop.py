"""Run controllers: the loop, leader election, probes, metrics and log of programs in a cluster.

A controller compares a part of the cluster with what it should be, and changes or reports what
differs: a *pass*. One process runs its controllers one after the other, again and again, until it
is told to stop. Every pass lists anew what it needs, so a pass that failed needs no repair: the
next one makes up for it (docs/decisions/0033). A watch may begin the next pass early; it says that
something has changed, never what.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import random
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from structlog.typing import EventDict

from cluster.api.errors import ClusterError, ConflictError, Leases, Object
from terminal import write_error

_LEASE_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_MAX_LOGGED = 20  # problems of one pass
_JITTER = 0.1  # of the time between two passes, so that controllers do not act at once
# Between the beginnings of two passes, however often something changes: two writers that overwrite
# each other must not keep an API server busy.
_LEAST_SECONDS = 1.0
_WATCH_RETRY_SECONDS = 30.0
_MAX_REACTIONS = 10  # of a watch at once; after them one each second, for the same reason


_log = structlog.get_logger("gpuward.watch")


class StoppedError(Exception):
    """The process is told to end in the middle of a pass."""


class Controller(Collector, ABC):
    """A process that repeats its work in a cluster, one pass at each `reconcile()`.

    A subclass says in `_reconcile` what a pass does, and in `collect` which metrics it has.

    - `log`: its logger; `failure` is the event of an error there.
    - `expected`: what a pass may raise, apart from ClusterError. Its message is logged; of anything
      else, which is a bug, the traceback is.
    - `stale_seconds`: the loop is stuck if a pass takes longer, or if no pass begins within this
      time. With `idle_seconds`, that is the longest time between two passes.
    - `leader`: only its holder acts, of all processes that run this controller.
    """

    def __init__(
        self,
        log: Any,
        failure: str,
        *,
        stale_seconds: float,
        idle_seconds: float | None = None,
        expected: tuple[type[Exception], ...] = (),
        leader: LeaderElection | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._failure = failure
        self._stale_seconds = stale_seconds
        self._idle_seconds = stale_seconds if idle_seconds is None else idle_seconds
        self._expected: tuple[type[Exception], ...] = (ClusterError, *expected)
        self._leader = leader
        self._monotonic = monotonic
        self._began_at = math.inf
        self._ended_at = monotonic()
        self._problems: list[str] = []
        self.is_leader = False
        self.passes = 0
        """Passes that ended, including those that failed."""
        self.failures = 0
        """Passes that failed, or had to leave something out."""

    @abstractmethod
    def _reconcile(self, report: Callable[[Exception | str], None]) -> None:
        """One pass. What it must leave out, it gives to `report`; what ends it, it raises."""

    def reconcile(self) -> bool:
        """One pass, if this process leads; whether nothing went wrong.

        Never raises. A problem is counted each time, and logged when it begins.
        """
        problems: list[str] = []
        failure: Exception | None = None
        self._began_at = self._monotonic()
        try:
            self.is_leader = self._leader is None or self._leader.acquire()
            if self.is_leader:
                self._reconcile(lambda problem: problems.append(str(problem)))
            else:
                self._stand_by()
        except StoppedError:
            return True
        except ConflictError as error:
            # Another client has written the object; the next pass sees what.
            self._log.info("conflict", error=str(error))
        except self._expected as error:
            problems.append(str(error))
            failure = error
        except Exception as error:  # noqa: BLE001  # the outermost loop
            # Most likely a bug. The next pass may succeed, and a process that ends would forget
            # what it has seen.
            self._log.exception(self._failure)
            failure = error
        finally:
            self._began_at, self._ended_at = math.inf, self._monotonic()
        if failure is not None:
            self._on_failure(failure)
        for text in [text for text in problems if text not in self._problems][:_MAX_LOGGED]:
            self._log.error(self._failure, error=text)
        self._problems = problems
        self.passes += 1
        went_wrong = failure is not None or bool(problems)
        self.failures += went_wrong
        return not went_wrong

    def _stand_by(self) -> None:
        """Run while another process leads, in place of a pass. Does nothing by default."""

    def _on_failure(self, error: Exception) -> None:
        """Forget what a pass that ended with `error` may have made wrong."""

    @property
    def ready(self) -> bool:
        """Return whether this process has done its work once, or another one does it.

        True by default.
        """
        return True

    def collect(self) -> Iterator[Metric]:
        """The metrics; none by default."""
        return iter(())

    def stop(self) -> None:
        """Give up the Lease, so that another process can act at once."""
        try:
            if self._leader is not None:
                self._leader.release()
        except ClusterError as error:
            self._log.warning("lease not released", error=str(error))

    @property
    def alive(self) -> bool:
        """Return whether passes still end, well or badly.

        A restart would not help a controller whose passes fail.
        """
        now = self._monotonic()
        if self._began_at <= now:
            return now - self._began_at <= self._stale_seconds
        return now - self._ended_at <= self._idle_seconds

    def metrics(self) -> bytes:
        """The metrics of this controller in Prometheus' text format."""
        return _metrics((self,))


class Watch(NamedTuple):
    """A thread that waits for changes of `what`, so that a pass follows each at once.

    `changes` yields when it begins to watch, and when something may have changed. It ends now and
    then, and raises ClusterError. `react` is what cannot wait for the pass that is under way. It
    must be safe beside a pass, and may raise ClusterError: the pass makes up for it.
    """

    what: str
    changes: Callable[[], Iterator[None]]
    react: Callable[[], object] = lambda: None

    def run(self, on_change: Callable[[], object], stop: threading.Event, log: Any) -> None:
        """Call `on_change` after each change until `stop` is set. Errors are logged as they begin.

        Without a watch, changes are seen by the next regular pass.
        """
        problem = ""
        recent = deque[float](maxlen=_MAX_REACTIONS)
        while not stop.is_set():
            try:
                for _ in self.changes():
                    problem = ""
                    self._react(recent)
                    on_change()
                stop.wait(_LEAST_SECONDS)
            except ClusterError as error:
                if problem != str(error):
                    log.warning("changes not watched", what=self.what, error=str(error))
                problem = str(error)
                stop.wait(_WATCH_RETRY_SECONDS)

    def _react(self, recent: deque[float]) -> None:
        """Call `react`, unless it has been called very often just now: `recent` has the times."""
        now = time.monotonic()
        if len(recent) == _MAX_REACTIONS and now - recent[0] < _MAX_REACTIONS * _LEAST_SECONDS:
            return
        recent.append(now)
        with contextlib.suppress(ClusterError):
            self.react()


class ControlLoop(NamedTuple):
    """The controllers of a process, with so many `seconds` between two passes of them.

    `on_start` is called with the event that tells the process to stop. After each change that one
    of the `watches` sees, the next pass begins at once.
    """

    controllers: Sequence[Controller]
    seconds: float
    on_start: Callable[[threading.Event], object] = lambda _: None
    watches: Sequence[Watch] = ()

    def run(self, stop: threading.Event) -> None:
        """Run passes until `stop` is set, then give up what is held."""
        self.on_start(stop)
        wake = threading.Event()

        def wake_to_stop() -> None:
            stop.wait()
            wake.set()

        _start_thread("stop", wake_to_stop)
        for watch in self.watches:
            _start_thread(watch.what, partial(watch.run, wake.set, stop, _log))
        spread = random.SystemRandom()
        while not stop.is_set():
            began_at = time.monotonic()
            for controller in self.controllers:
                controller.reconcile()
            wake.wait(self.seconds * spread.uniform(1 - _JITTER, 1 + _JITTER))
            if wake.is_set():
                stop.wait(max(0.0, began_at + _LEAST_SECONDS - time.monotonic()))
                wake.clear()
        for controller in self.controllers:
            controller.stop()

    @property
    def alive(self) -> bool:
        """Return whether no controller is stuck."""
        return all(controller.alive for controller in self.controllers)

    @property
    def ready(self) -> bool:
        """Return whether all controllers have done their work once."""
        return all(controller.ready for controller in self.controllers)

    def metrics(self) -> bytes:
        """The metrics of all controllers in Prometheus' text format."""
        return _metrics(self.controllers)


def _start_thread(name: str, run: Callable[[], object]) -> None:
    """Start a thread that does not keep the process from ending."""
    threading.Thread(target=run, name=name, daemon=True).start()


def run_loop(
    make: Callable[[], ControlLoop], status_port: int, command: str, *, failed: int = 1
) -> int:
    """Run what `make` returns until SIGTERM or SIGINT; the exit status of `command`.

    Serves /healthz, /readyz and /metrics on `status_port` meanwhile, and logs as JSON. The status
    is `failed`, with a line on standard error, if no API server or no port can be used.
    """
    log_as_json()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        loop = make()
        server = serve_status(
            status_port,
            alive=lambda: loop.alive,
            ready=lambda: loop.ready,
            metrics=loop.metrics,
        )
        loop.run(stop)
        server.shutdown()
        server.server_close()
    except (ClusterError, OSError) as error:
        write_error(f"gpuward {command}", error)
        return failed
    return 0


def _metrics(controllers: Sequence[Controller]) -> bytes:
    registry = CollectorRegistry()
    for controller in controllers:
        registry.register(controller)
    return generate_latest(registry)


class LeaderElection:
    """Leader election: of several processes, only the holder of the Lease acts.

    Two run at once during a rolling update. A holder that does not know yet that it lost the Lease
    does no harm, because every write names the version that it read.

    Competes for the Lease `name`, which it creates if there is none; `identity` must be unique.

    `seconds` is how long a holder may be silent before another takes over. It is measured by
    `monotonic` from the last renewal that was seen; clocks of machines are not compared for it.
    """

    def __init__(
        self,
        cluster: Leases,
        name: str,
        identity: str,
        *,
        seconds: float,
        monotonic: Callable[[], float],
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._identity = identity
        self._seconds = seconds
        self._monotonic = monotonic
        self._clock = clock
        self._renewal: object = None
        self._renewal_seen_at = 0.0
        self._held_until = -math.inf
        self.is_held_by_another = False
        """Whether another holder was seen to renew the Lease, or has renewed it just now."""

    @property
    def held(self) -> bool:
        """Return whether the Lease is ours, and surely will be for some more time."""
        return self._monotonic() < self._held_until

    def acquire(self) -> bool:
        """Take or renew the Lease; whether it is ours now. ClusterError if that is unknown."""
        requested_at = self._monotonic()
        lease = self._cluster.get_lease(self._name) or {"metadata": {"name": self._name}}
        spec = lease.get("spec") or {}
        if not self._free(spec):
            self._held_until = -math.inf
            return False
        lease["spec"] = self._renewed(spec)
        try:
            self._cluster.write_lease(lease)
        except ConflictError:
            self._held_until = -math.inf
            return False
        # Counted from before the request, and shorter than other controllers wait.
        self._held_until = requested_at + self._seconds / 2
        return True

    def release(self) -> None:
        """Give up the Lease, so that another can take it immediately. Raises ClusterError."""
        if not self.held:
            return
        self._held_until = -math.inf
        lease = self._cluster.get_lease(self._name)
        if lease and lease.get("spec", {}).get("holderIdentity") == self._identity:
            lease["spec"]["holderIdentity"] = ""
            self._cluster.write_lease(lease)

    def _free(self, spec: Object) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self._identity:
            self.is_held_by_another = False
            return True
        renewal = (holder, spec.get("renewTime"))
        if renewal != self._renewal:
            self.is_held_by_another = self._renewal is not None or self._is_recent(renewal[1])
            self._renewal, self._renewal_seen_at = renewal, self._monotonic()
            return False
        silent_for = self._monotonic() - self._renewal_seen_at
        return silent_for > max(self._seconds, spec.get("leaseDurationSeconds") or 0)

    def _is_recent(self, time: object) -> bool:
        """Return whether a renewal that was not seen is recent by the clock, which may be wrong.

        So nothing but the first readiness depends on it.
        """
        try:
            renewed_at = datetime.datetime.fromisoformat(str(time))
        except ValueError:
            return False
        if renewed_at.tzinfo is None:
            return False
        return abs((self._clock() - renewed_at).total_seconds()) < self._seconds

    def _renewed(self, spec: Object) -> Object:
        now = self._clock().strftime(_LEASE_TIME)
        renewed = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._seconds)),
            "renewTime": now,
        }
        if spec.get("holderIdentity") != self._identity:
            renewed["acquireTime"] = now
            renewed["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1
        return renewed


def serve_status(
    port: int,
    *,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
) -> ThreadingHTTPServer:
    """Serve /healthz, /readyz and /metrics on `port` of every address, in a thread.

    It ends with `shutdown()`.

    `metrics` returns Prometheus' text format. Raises OSError.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds for a request to arrive

        def do_GET(self) -> None:
            """Answer a probe or a scrape."""
            responses: dict[str, Callable[[], tuple[int, bytes]]] = {
                "/healthz": lambda: (200, b"ok\n") if alive() else (503, b"stuck\n"),
                "/readyz": lambda: (200, b"ok\n") if ready() else (503, b"not ready\n"),
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
    _start_thread("status", server.serve_forever)
    return server


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
