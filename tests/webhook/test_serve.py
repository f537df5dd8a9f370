"""`gpuward serve` as its users see it: a process, its signals, its exit status."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gpuward.__main__ import main
from tests.testkit.admission.server import (
    ANY_PORT,
    PATIENT,
    REVIEW,
    Caller,
    Reply,
    request,
    until,
    write_certificate,
)
from tests.testkit.paths import ROOT
from webhook.options import make_parser

PATIENTLY = ("--read-seconds", "3600")
COMMAND = (sys.executable, "-m", "gpuward", "serve")


class Server:
    """A server process."""

    def __init__(self, process: Process, tls: ssl.SSLContext | None) -> None:
        self.process = process
        self._tls = tls
        self.log: list[dict[str, Any]] = []
        self._callers: list[Caller] = []
        self._reading = asyncio.create_task(self._read())
        self._news = asyncio.Condition()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._news:
                self.log.append(json.loads(line))
                self._news.notify_all()

    async def told(self, event: str) -> dict[str, Any]:
        """The first line of the log about `event`, when it is there."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.log if line["event"] == event), None)

        async with asyncio.timeout(PATIENT), self._news:
            await self._news.wait_for(lambda: found() is not None)
        line = found()
        assert line is not None
        return line

    async def call(self) -> Caller:
        """A connection for reviews."""
        return await self._open("address", self._tls)

    async def connect(self) -> Caller:
        """A connection for reviews on which nothing is said, not even TLS."""
        return await self._open("address", None)

    async def probe(self, path: str) -> Reply:
        """Ask on the plain port."""
        caller = await self._open("metrics_address", None)
        await caller.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        reply = await caller.reply()
        await caller.begin_drain()
        return reply

    async def port(self, which: str = "address") -> int:
        """The port of an address that the server has logged."""
        address: str = (await self.told("serving"))[which]
        return int(address.rsplit(":", 1)[1])

    async def _open(self, which: str, tls: ssl.SSLContext | None) -> Caller:
        port = await self.port(which)
        caller = Caller(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))
        self._callers.append(caller)
        return caller

    async def end(self) -> None:
        """Close what was opened, and kill it if it still runs."""
        for caller in self._callers:
            await caller.begin_drain()
        if self.process.returncode is None:
            self.process.kill()
        await self.status()

    async def status(self) -> int:
        """The exit status, when it is there."""
        async with asyncio.timeout(PATIENT):
            status = await self.process.wait()
            await self._reading
        return status


Start = Callable[..., Awaitable[Server]]


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts server processes; those that still run at the end are killed."""
    authority = write_certificate(tmp_path / "certificate")
    tls = ssl.create_default_context(cafile=str(authority))
    servers: list[Server] = []

    async def run(*arguments: str) -> Server:
        places = ("--listen", ANY_PORT, "--metrics-listen", ANY_PORT)
        command = (*COMMAND, "--certificate", str(authority.parent), *places, *arguments)
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=PIPE)
        server = Server(process, tls)
        servers.append(server)
        return server

    yield run
    for server in servers:
        await server.end()


async def test_it_serves_drains_and_ends(start: Start) -> None:
    server = await start("--drain-seconds", "3600")
    caller, idle = await server.call(), await server.call()
    reply = await caller.post("/mutate/deny")
    assert reply.status == 200
    assert "connection" not in reply.headers
    assert (await server.probe("/readyz")).status == 200
    server.process.send_signal(signal.SIGTERM)
    await server.told("draining")
    ready = await server.probe("/readyz")
    assert (ready.status, ready.body) == (503, b"not ready: draining\n")
    assert (await server.probe("/healthz")).status == 200
    for connection in (caller, idle, await server.call()):
        reply = await connection.post("/validate/deny")
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await connection.closed()
    server.process.send_signal(signal.SIGTERM)
    assert await server.status() == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_has_begun_is_finished(start: Start, number: signal.Signals) -> None:
    server = await start("--drain-seconds", "0", *PATIENTLY)
    begun, idle = await server.call(), await server.call()
    assert (await idle.post("/mutate/deny")).status == 200
    await begun.send(request("/mutate/deny")[:-1])
    while b"gpuward_waiting_requests 1.0" not in (await server.probe("/metrics")).body:
        pass
    server.process.send_signal(number)
    await server.told("draining")
    await begun.send(b"\n")
    reply = await begun.reply()
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert await idle.closed()
    assert await server.status() == 0
    assert server.log[-1]["event"] == "stopped"


class Forwarder:
    """A Service: new connections go to the server that is ready now, old ones stay."""

    def __init__(self) -> None:
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to the server and back."""
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.port)
        await asyncio.gather(_carry(reader, to_writer), _carry(to_reader, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def test_a_rolling_restart_loses_no_call(start: Start, tmp_path: Path) -> None:
    forwarder = Forwarder()
    service = await asyncio.start_server(forwarder.take, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    tls = ssl.create_default_context(cafile=str(tmp_path / "certificate" / "ca.crt"))
    old = await start("--drain-seconds", "2")
    forwarder.port = await old.port()
    done, enough = 0, asyncio.Event()

    async def load() -> None:
        """What an API server does: keep a connection until it is told to close it."""
        nonlocal done
        while not enough.is_set():
            caller = Caller(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))
            reply = await caller.post("/mutate/deny")
            while reply.headers.get("connection") != "close" and not enough.is_set():
                assert reply.status == 200
                done += 1
                reply = await caller.post("/mutate/deny")
            assert reply.status == 200
            done += 1
            await caller.begin_drain()

    callers = [asyncio.create_task(load()) for _ in range(6)]
    for _ in range(2):
        new = await start("--drain-seconds", "2")
        await new.told("serving")
        goal = done + 100
        old.process.send_signal(signal.SIGTERM)
        await old.told("draining")
        forwarder.port = await new.port()
        assert await old.status() == 0
        await _reached(lambda: done, goal, callers)
        old = new
    enough.set()
    await asyncio.gather(*callers)  # raises what any of them has met
    service.close()


async def _reached(done: Callable[[], int], goal: int, tasks: list[asyncio.Task[None]]) -> None:
    """Return when so many calls are done, or one of `tasks` has failed."""
    await until(lambda: done() > goal or any(task.done() for task in tasks))


def refused(*arguments: str) -> str:
    """What is said to a command line that cannot be served."""
    command = (*COMMAND, *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=PATIENT)
    assert done.returncode == 2
    assert not done.stdout
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def test_a_command_line_that_cannot_be_served_is_explained(tmp_path: Path) -> None:
    folder = ("--certificate", str(tmp_path))
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: Pod\n")
    assert "--certificate DIR is needed" in refused()
    assert "leave out --certificate" in refused(*folder, "--dev")
    assert "goes with --dev" in refused(*folder, "--print-configuration")
    assert "none.yaml: no such file" in refused(*folder, "--policy", "none.yaml")
    assert "bad.yaml:1:" in refused(*folder, "--policy", str(bad))
    assert "no-such-profile" in refused(*folder, "--profile", "no-such-profile")
    assert "'x' is not HOST:PORT" in refused(*folder, "--listen", "x")
    free = ("--listen", "127.0.0.1:0")
    assert "a port is 1 to 65535" in refused(*folder, *free, "--metrics-listen", "localhost:99999")
    for name in ("https://x", "-x", "a..b", "1.2.3", "x:8443", "a b", ""):
        assert "no DNS name or IP address" in refused("--dev", f"--server-name={name}")
    assert "in brackets" in refused(*folder, "--listen", "::1:80")
    assert "not a number from 1 up" in refused(*folder, "--max-in-flight", "0")
    assert "not a number from 0 up" in refused(*folder, "--drain-seconds", "nan")


def test_an_address_in_use_is_explained(tmp_path: Path) -> None:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused("--certificate", str(tmp_path), "--listen", address)
        assert said.endswith(f"\ngpuward: cannot listen on {address}: address already in use\n")


def test_every_flag_is_explained_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert "--max-in-flight" in capsys.readouterr().out
    for action in make_parser()._actions[1:]:  # noqa: SLF001  # there is no other way
        assert action.help
        assert action.help.endswith(".")


async def test_by_default_every_address_is_listened_on(start: Start) -> None:
    server = await start("--listen", ":0")
    assert (await server.told("serving"))["address"].startswith(("[::]:", "0.0.0.0:"))
    assert (await (await server.call()).post("/mutate/deny")).status == 200


async def test_without_the_extras_it_serves_the_same(start: Start) -> None:
    plain, quick = await start("--no-uvloop"), await start()
    replies = [await (await s.call()).post("/mutate/deny") for s in (plain, quick)]
    assert replies[0].body == replies[1].body


async def test_the_bounds_on_callers_are_flags(start: Start) -> None:
    server = await start("--max-in-flight", "1", "--max-connections", "3", *PATIENTLY)
    slow, brisk = await server.call(), await server.call()
    await slow.send(request("/mutate/deny")[:-1])
    while b"gpuward_waiting_requests 1.0" not in (await server.probe("/metrics")).body:
        pass
    await brisk.send(request("/mutate/deny")[:-1])
    reply = await brisk.reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    await server.connect()
    assert await (await server.connect()).closed()
    await slow.send(b"\n")
    assert (await slow.reply()).status == 200


def test_the_sample_is_a_review() -> None:
    assert json.loads(REVIEW)["kind"] == "AdmissionReview"
    assert os.path.getsize(ROOT / "webhook" / "sample-review.json") == len(REVIEW)
