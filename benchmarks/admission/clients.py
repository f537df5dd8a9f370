"""Clients that send a request, wait for its answer and send the next, in a process of their own.

Each keeps one connection. `Clients.run` starts the process, in which `main` sends. The clients
begin one after another, so that they do not send in waves. What is measured are all answers that
arrive in the measured time.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import json
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from benchmarks.admission.baseline import loop_factory
from benchmarks.admission.load import Mix, varied

MODULE = "benchmarks.admission.clients"
CREATED, TOO_MANY_REQUESTS = 201, 429
RETRY_SECONDS = 1.0  # as API servers ask for
LATE_SECONDS = 40.0  # for the last answers; API servers give up after 34 seconds
HANDSHAKES_AT_ONCE = 25
STARTING_SHARE = 0.5  # of the warm-up, in which clients begin
HEAD_END, LAST_CHUNK = b"\r\n\r\n", b"\r\n0\r\n\r\n"


class Latencies(NamedTuple):
    """The latencies in seconds, sorted, of the requests that were answered as expected.

    `seconds` is the measured time, `failures` the number of other answers by their status, and
    `busy` the share of a processor that the clients took themselves.
    """

    sorted: Sequence[float]
    seconds: float
    failures: dict[str, int]
    busy: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.sorted) / self.seconds

    def percentile(self, share: float) -> float:
        """The latency in milliseconds below which this share of all are; NaN if there is none."""
        if not self.sorted:
            return float("nan")
        return self.sorted[min(int(share * len(self.sorted)), len(self.sorted) - 1)] * 1000


class Clients:
    """Starts processes that send requests; their files are in `folder`.

    Clients take turns with `tokens`, by which they are different users to the API server.
    """

    def __init__(self, folder: Path, tokens: Sequence[str]) -> None:
        self._folder = folder
        self._tokens = tokens
        self._first = 0

    def run(
        self, url: str, body: bytes, mix: Mix, number: int, warm_up: float, seconds: float
    ) -> Latencies:
        """Send for `warm_up` seconds, and then for the `seconds` that are measured.

        `number` clients send `body`, varied as `mix` says, and differently from earlier runs.
        """
        file = self._folder / "body.json"
        file.write_bytes(body)
        order = {
            "url": url,
            "file": str(file),
            "tokens": self._tokens,
            "mix": mix,
            "first": self._first,
            "number": number,
            "warm_up": warm_up,
            "seconds": seconds,
        }
        done = subprocess.run(
            [sys.executable, "-m", MODULE],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"the clients failed:\n{done.stdout}{done.stderr}")
        result = json.loads(done.stdout)
        self._first += result.pop("sent")
        return Latencies(seconds=seconds, **result)


class _Run:
    """The request, and the answers so far, of all clients of a process."""

    def __init__(self, url: str, body: bytes, mix: Mix, first: int) -> None:
        target = urlsplit(url)
        path = f"{target.path}?{target.query}" if target.query else target.path
        self._head = f"POST {path} HTTP/1.1\r\nHost: {target.netloc}\r\n"
        self._head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._body = body
        self._mix = mix
        self._number = self._template = self._release = first
        self._first = first
        self.latencies: list[float] = []
        self.failures: Counter[str] = Counter()
        self.measured_from = self.ends = float("inf")

    @property
    def sent(self) -> int:
        """The number of requests so far."""
        return self._number - self._first

    def head(self, token: str) -> bytes:
        """The head of all requests with this token."""
        return f"{self._head}Authorization: Bearer {token}\r\n\r\n".encode()

    def next_body(self) -> bytes:
        """The body of the next request of any client."""
        self._number += 1
        self._template += not self._number % self._mix.requests_per_template
        self._release += not self._number % self._mix.requests_per_release
        return varied(self._body, self._number, self._template, self._release)

    def record(self, began: float, status: str) -> None:
        """Count an answer, if it arrives in the measured time."""
        now = time.perf_counter()
        if not self.measured_from <= now < self.ends:
            return
        if status == str(CREATED):
            self.latencies.append(now - began)
        else:
            self.failures[status] += 1


class _Client(asyncio.Protocol):
    """One client with its connection."""

    def __init__(self, run: _Run, token: str) -> None:
        self._run = run
        self._head = run.head(token)
        self._received = bytearray()
        self._began = 0.0
        self._transport: asyncio.Transport
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self.ended.done():
            self._run.record(self._began, "connection lost")
            self.ended.set_result(None)

    def send(self) -> None:
        """Send the next request; close the connection if the time is over."""
        self._began = time.perf_counter()
        if self._began < self._run.ends:
            self._transport.write(self._head + self._run.next_body())
            return
        if not self.ended.done():
            self.ended.set_result(None)
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._is_complete():
            return
        status = self._received.split(b" ", 2)[1].decode()
        self._received.clear()
        self._run.record(self._began, status)
        if status == str(TOO_MANY_REQUESTS):
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.send)
        else:
            self.send()

    def _is_complete(self) -> bool:
        """Return whether a whole answer is there; JSON has no line ends as chunks have them."""
        received = self._received
        end = received.find(HEAD_END)
        if end < 0:
            return False
        head = received[:end].lower()
        length = head.find(b"\r\ncontent-length:")
        if length < 0:
            return received.endswith(LAST_CHUNK)
        size = int(head[length + len("\r\ncontent-length:") :].split(b"\r\n", 1)[0])
        return len(received) >= end + len(HEAD_END) + size


def main() -> None:
    """Send what the JSON object on stdin says, and print what was measured, as JSON."""
    order = json.load(sys.stdin)
    body, mix = Path(order["file"]).read_bytes(), Mix(*order["mix"])
    run = _Run(order["url"], body, mix, order["first"])
    gc.disable()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        busy = runner.run(_send(run, order))
    result = {
        "sorted": sorted(run.latencies),
        "failures": run.failures,
        "busy": busy,
        "sent": run.sent,
    }
    print(json.dumps(result))


async def _send(run: _Run, order: dict[str, Any]) -> float:
    """Send, and return the share of a processor that it took in the measured time."""
    loop = asyncio.get_running_loop()
    clients = await _connected(run, order)
    began, warm_up, seconds = time.perf_counter(), order["warm_up"], order["seconds"]
    run.measured_from = began + warm_up
    run.ends = run.measured_from + seconds
    for number, client in enumerate(clients):
        loop.call_later(STARTING_SHARE * warm_up * number / len(clients), client.send)
    await asyncio.sleep(warm_up)
    before = time.process_time()
    await asyncio.sleep(seconds)
    busy: float = (time.process_time() - before) / seconds
    await asyncio.wait([client.ended for client in clients], timeout=LATE_SECONDS)
    return busy


async def _connected(run: _Run, order: dict[str, Any]) -> list[_Client]:
    """Return the clients, which are connected."""
    loop, target = asyncio.get_running_loop(), urlsplit(order["url"])
    host, port, tokens = target.hostname or "", target.port or 443, itertools.cycle(order["tokens"])
    # An API server of this machine, with a CA of its own.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001
    context.set_alpn_protocols(["http/1.1"])

    async def connect() -> _Client:
        made = functools.partial(_Client, run, next(tokens))
        return (await loop.create_connection(made, host, port, ssl=context))[1]

    clients: list[_Client] = []
    while missing := order["number"] - len(clients):
        batch = (connect() for _ in range(min(missing, HANDSHAKES_AT_ONCE)))
        clients += await asyncio.gather(*batch)
    return clients


if __name__ == "__main__":
    main()
