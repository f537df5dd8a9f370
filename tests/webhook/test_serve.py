"""Tests of `gpuward serve` as a process: its signals, its log and its exit status."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gpuward import __version__
from tests.testkit.admission.caller import REVIEW, TIMEOUT_SECONDS, Caller, Reply, request
from tests.testkit.admission.server import ANY_PORT, wait_until, write_certificate
from tests.testkit.paths import ROOT

SLOW_READS = ("--read-seconds", "3600")
COMMAND = (sys.executable, "-m", "gpuward", "serve")


class ServerProcess:
    """A server process."""

    def __init__(self, process: Process, tls: ssl.SSLContext | None) -> None:
        self.process = process
        self._tls = tls
        self.log: list[dict[str, Any]] = []
        self._callers: list[Caller] = []
        self._reading = asyncio.create_task(self._read())
        self._log_changed = asyncio.Condition()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if not line.endswith(b"\n"):
                break  # `end` has killed the process while it wrote
            async with self._log_changed:
                self.log.append(json.loads(line))
                self._log_changed.notify_all()

    async def wait_for_event(self, event: str) -> dict[str, Any]:
        """Wait for the first log line about `event` and return it."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.log if line["event"] == event), None)

        async with asyncio.timeout(TIMEOUT_SECONDS), self._log_changed:
            await self._log_changed.wait_for(lambda: found() is not None)
        line = found()
        assert line is not None
        return line

    async def connect(self) -> Caller:
        """Open a connection for reviews."""
        return await self._open("address", self._tls)

    async def connect_without_tls(self) -> Caller:
        """Open a connection for reviews without a TLS handshake."""
        return await self._open("address", None)

    async def probe(self, path: str) -> Reply:
        """Send a GET request to the plain HTTP port."""
        caller = await self._open("metrics_address", None)
        await caller.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        reply = await caller.reply()
        await caller.close()
        return reply

    async def port(self, which: str = "address") -> int:
        """The port of an address that the server has logged."""
        address: str = (await self.wait_for_event("serving"))[which]
        return int(address.rsplit(":", 1)[1])

    async def _open(self, which: str, tls: ssl.SSLContext | None) -> Caller:
        port = await self.port(which)
        caller = Caller(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))
        self._callers.append(caller)
        return caller

    async def end(self) -> None:
        """Close the connections, and kill the process if it still runs."""
        for caller in self._callers:
            await caller.close()
        if self.process.returncode is None:
            self.process.kill()
        await self.status()

    async def status(self) -> int:
        """Wait for the exit status and return it."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            status = await self.process.wait()
            await self._reading
        return status


Start = Callable[..., Awaitable[ServerProcess]]


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts server processes; those that still run at the end are killed."""
    authority = write_certificate(tmp_path / "certificate")
    tls = ssl.create_default_context(cafile=str(authority))
    servers: list[ServerProcess] = []

    async def run(*arguments: str) -> ServerProcess:
        places = ("--listen", ANY_PORT, "--metrics-listen", ANY_PORT)
        command = (*COMMAND, "--certificate", str(authority.parent), *places, *arguments)
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=PIPE)
        server = ServerProcess(process, tls)
        servers.append(server)
        return server

    yield run
    for server in servers:
        await server.end()


async def test_it_serves_drains_and_ends(start: Start) -> None:
    server = await start("--drain-seconds", "3600")
    caller, idle = await server.connect(), await server.connect()
    reply = await caller.post("/mutate/deny")
    assert reply.status == 200
    assert server.log[0]["event"] == "starting"
    assert server.log[0]["version"] == __version__
    assert "connection" not in reply.headers
    assert (await server.probe("/readyz")).status == 200
    server.process.send_signal(signal.SIGTERM)
    await server.wait_for_event("draining")
    ready = await server.probe("/readyz")
    assert (ready.status, ready.body) == (503, b"not ready: draining\n")
    assert (await server.probe("/healthz")).status == 200
    for connection in (caller, idle, await server.connect()):
        reply = await connection.post("/validate/deny")
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await connection.closed()
    server.process.send_signal(signal.SIGTERM)
    assert await server.status() == 128 + signal.SIGTERM


@pytest.mark.parametrize("loop", ["--no-uvloop", "--log-level=info"])
def test_a_signal_before_the_first_request_ends_it(tmp_path: Path, loop: str) -> None:
    """The process gets it while it listens already, and prepares the garbage collector."""
    program = (
        "import gc, os, signal, sys\n"
        "from gpuward.__main__ import main\n"
        "gc.collect = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(main())\n"
    )
    write_certificate(tmp_path)
    places = ("--listen", ANY_PORT, "--metrics-listen", ANY_PORT, "--drain-seconds", "0")
    done = subprocess.run(
        (sys.executable, "-c", program, "serve", "--certificate", str(tmp_path), *places, loop),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0
    assert json.loads(done.stderr.splitlines()[-1])["event"] == "stopped"


async def test_it_counts_the_namespaces_of_its_command_line(start: Start) -> None:
    server = await start("--count-namespace", "vision")
    caller = await server.connect()
    assert (await caller.post("/mutate/deny")).status == 200
    assert b'object_namespace="vision"' in (await server.probe("/metrics")).body


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_request_in_progress_is_finished(start: Start, number: signal.Signals) -> None:
    server = await start("--drain-seconds", "0", *SLOW_READS)
    busy, idle = await server.connect(), await server.connect()
    assert (await idle.post("/mutate/deny")).status == 200
    await busy.send(request("/mutate/deny")[:-1])
    while b"gpuward_waiting_requests 1.0" not in (await server.probe("/metrics")).body:
        pass
    server.process.send_signal(number)
    await server.wait_for_event("draining")
    await busy.send(b"\n")
    reply = await busy.reply()
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert await idle.closed()
    assert await server.status() == 0
    assert server.log[-1]["event"] == "stopped"


class Forwarder:
    """Like a Service: new connections go to the server at `port`, open ones stay."""

    def __init__(self) -> None:
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection to the server and back."""
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.port)
        await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@pytest.mark.slow
async def test_a_rolling_restart_loses_no_request(start: Start, tmp_path: Path) -> None:
    forwarder = Forwarder()
    service = await asyncio.start_server(forwarder.forward, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    tls = ssl.create_default_context(cafile=str(tmp_path / "certificate" / "ca.crt"))
    old = await start("--drain-seconds", "2")
    forwarder.port = await old.port()
    done, finished = 0, asyncio.Event()

    async def load() -> None:
        """Like an API server, keep a connection until the server asks to close it."""
        nonlocal done
        while not finished.is_set():
            caller = Caller(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))
            reply = await caller.post("/mutate/deny")
            while reply.headers.get("connection") != "close" and not finished.is_set():
                assert reply.status == 200
                done += 1
                reply = await caller.post("/mutate/deny")
            assert reply.status == 200
            done += 1
            await caller.close()

    callers = [asyncio.create_task(load()) for _ in range(6)]
    for _ in range(2):
        new = await start("--drain-seconds", "2")
        await new.wait_for_event("serving")
        goal = done + 100
        old.process.send_signal(signal.SIGTERM)
        await old.wait_for_event("draining")
        forwarder.port = await new.port()
        assert await old.status() == 0
        await _reached(lambda: done, goal, callers)
        old = new
    finished.set()
    await asyncio.gather(*callers)  # raises the error of any of them
    service.close()


async def _reached(done: Callable[[], int], goal: int, tasks: list[asyncio.Task[None]]) -> None:
    """Return when `done()` is above `goal`, or one of `tasks` has failed."""
    await wait_until(lambda: done() > goal or any(task.done() for task in tasks))


def usage_error(*arguments: str) -> str:
    """The error message of a command line that is refused."""
    command = (*COMMAND, *arguments)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 2
    assert not done.stdout
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


@pytest.mark.slow
def test_a_command_line_that_cannot_be_served_is_explained(tmp_path: Path) -> None:
    folder = ("--certificate", str(tmp_path))
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: Pod\n")
    assert "--certificate DIR is needed" in usage_error()
    assert "leave out --certificate" in usage_error(*folder, "--dev")
    assert "goes with --dev" in usage_error(*folder, "--print-configuration")
    assert "none.yaml: no such file" in usage_error(*folder, "--policy", "none.yaml")
    assert "bad.yaml:1:" in usage_error(*folder, "--policy", str(bad))
    assert "no-such-profile" in usage_error(*folder, "--profile", "no-such-profile")
    assert "'x' is not HOST:PORT" in usage_error(*folder, "--listen", "x")
    free = ("--listen", "127.0.0.1:0")
    assert "a port is 1 to 65535" in usage_error(
        *folder, *free, "--metrics-listen", "localhost:99999"
    )
    for name in ("https://x", "-x", "a..b", "1.2.3", "x:8443", "a b", ""):
        assert "no DNS name or IP address" in usage_error("--dev", f"--server-name={name}")
    assert "in brackets" in usage_error(*folder, "--listen", "::1:80")
    assert "not a number from 1 up" in usage_error(*folder, "--max-in-flight", "0")
    assert "not a number from 0 up" in usage_error(*folder, "--drain-seconds", "nan")


def test_an_address_in_use_is_explained(tmp_path: Path) -> None:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as occupied:
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        error = usage_error("--certificate", str(tmp_path), "--listen", address)
        assert error.endswith(f"\ngpuward: cannot listen on {address}: address already in use\n")


async def test_by_default_every_address_is_listened_on(start: Start) -> None:
    server = await start("--listen", ":0")
    assert (await server.wait_for_event("serving"))["address"].startswith(("[::]:", "0.0.0.0:"))
    assert (await (await server.connect()).post("/mutate/deny")).status == 200


async def test_without_the_extras_it_serves_the_same(start: Start) -> None:
    plain, quick = await start("--no-uvloop"), await start()
    replies = [await (await s.connect()).post("/mutate/deny") for s in (plain, quick)]
    assert replies[0].body == replies[1].body


@pytest.mark.parametrize("port", ["address", "metrics_address"])
@pytest.mark.parametrize("arguments", [(), ("--no-uvloop",)])
async def test_a_flood_of_connections_leaves_room_for_those_after_it(
    start: Start, port: str, arguments: tuple[str, ...]
) -> None:
    """More than the server accepts at once, half of them while it closes others."""
    server = await start("--max-connections", "64", *arguments)
    place = ("127.0.0.1", await server.port(port))
    for _ in range(3):
        flood = [socket.create_connection(place) for _ in range(300)]
        for connection in flood:
            with suppress(OSError):
                connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for connection in flood:
            connection.close()
    for _ in range(80):
        assert (await server.probe("/healthz")).status == 200
        assert (await (await server.connect()).post("/mutate/deny")).status == 200
    metrics = (await server.probe("/metrics")).body
    assert b"gpuward_internal_errors_total 0.0" in metrics


async def test_the_bounds_on_callers_are_flags(start: Start) -> None:
    server = await start("--max-in-flight", "1", "--max-connections", "3", *SLOW_READS)
    first, second = await server.connect(), await server.connect()
    await first.send(request("/mutate/deny")[:-1])
    while b"gpuward_waiting_requests 1.0" not in (await server.probe("/metrics")).body:
        pass
    await second.send(request("/mutate/deny")[:-1])
    reply = await second.reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    waiting = await server.connect_without_tls()
    await server.connect_without_tls()
    await server.connect_without_tls()
    assert await waiting.closed()
    await first.send(b"\n")
    assert (await first.reply()).status == 200


def test_the_sample_is_a_review() -> None:
    assert json.loads(REVIEW)["kind"] == "AdmissionReview"
    assert os.path.getsize(ROOT / "webhook" / "sample-review.json") == len(REVIEW)
