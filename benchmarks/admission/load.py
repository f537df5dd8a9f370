"""Send load from another process: as much as the server can answer, or at a steady rate."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import shutil
import ssl
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

# Marks in the body of a review, for what differs from one request to the next.
#
# A replica of a pod has another uid, another name of the token's volume, and another time in its
# managed fields. A new release has another tag in its images as well, and a new template other
# names of its containers. Every value is as long as its mark. `replicas.lua` does for wrk what
# `varied` does here.

UID = "705ab4f5-6393-11e8-b7cc-uuuuuuuuuuuu"
VOLUME_SUFFIX = "ttttt"  # of the volume with the token
TIME = "10:mm:ssZ"
RELEASE = "rrrrrrrr"
TEMPLATE = "nnnnnnnn"
_ENDLESS = 1_000_000_000  # more than any benchmark sends


class Mix(NamedTuple):
    """The number of requests that come with one new template, and with one new release.

    0 for each template stands for requests that are all the same.
    """

    name: str
    requests_per_template: int
    requests_per_release: int = _ENDLESS


SAME = Mix("one body", 0)
REPLICAS = Mix("replicas", _ENDLESS)
NEW_RELEASES = Mix("new releases", _ENDLESS, 1)
NEW_IN_TEN, NEW_IN_THREE, ALL_NEW = Mix("1 new in 10", 10), Mix("1 new in 3", 3), Mix("all new", 1)
MIXES = (SAME, REPLICAS, NEW_RELEASES, NEW_IN_TEN, NEW_IN_THREE, ALL_NEW)


def varied(body: bytes, number: int, template: int, release: int) -> bytes:
    """The request with this `number`, of a pod with the template and release of these numbers."""
    minutes, seconds = divmod(number % 3600, 60)
    values = (
        (UID, f"{UID[:24]}{number:012}"),
        (f"access-{VOLUME_SUFFIX}", f"access-{_letters(number)}"),
        (TIME, f"10:{minutes:02}:{seconds:02}Z"),
        (RELEASE, f"{release:08}"),
        (TEMPLATE, f"{template:08}"),
    )
    for mark, value in values:
        body = body.replace(mark.encode(), value.encode())
    return body


def _letters(number: int) -> str:
    letters = ""
    for _ in VOLUME_SUFFIX:
        number, rest = divmod(number, 26)
        letters += string.ascii_lowercase[rest]
    return letters


PACED = "benchmarks.admission.load"
SCRIPT = str(Path(__file__).with_name("replicas.lua"))
MIN_REQUESTS = 20  # on each connection; a run with fewer is repeated for twice as long
MAX_SECONDS = 8.0


class Load(NamedTuple):
    """The result: the number of requests, the requests per second, and latencies in ms."""

    requests: int
    rate: float
    p50: float
    p99: float


class Client:
    """Sends reviews from the CPU cores in `cores`; it writes its files to `folder`.

    It sends `token`, if not empty, as a bearer token.
    """

    def __init__(self, folder: Path, cores: set[int], token: str = "") -> None:
        if not shutil.which("wrk"):
            sys.exit("this benchmark needs wrk: `apt-get install wrk`, or github.com/wg/wrk")
        self._cores = ",".join(map(str, sorted(cores)))
        self._body = folder / "body.json"
        self._sent = 0
        self._environment = {**os.environ, "BODY": str(self._body)}
        if token:
            self._environment["BEARER"] = token

    def closed(
        self, url: str, body: bytes, connections: int, seconds: float, mix: Mix = SAME
    ) -> Load:
        """Send for `seconds`; each connection sends its next request after the last response.

        Requests differ as `mix` says, and from all that were sent before.
        """
        self._body.write_bytes(body)
        self._environment["EVERY"] = str(mix.requests_per_template)
        self._environment["RELEASE_EVERY"] = str(mix.requests_per_release)
        result = self._wrk(url, connections, seconds)
        requests = result["requests"]
        while result["requests"] < MIN_REQUESTS * connections and seconds < MAX_SECONDS:
            # Other programs used the machine, and opening the connections took all the time.
            seconds *= 2
            result = self._wrk(url, connections, seconds)
            requests += result["requests"]
        rate = result["requests"] / result["us"] * 1e6
        return Load(requests, rate, result["p50"] / 1000, result["p99"] / 1000)

    def paced(
        self, url: str, body: bytes, rate: int, connections: int, seconds: float, mix: Mix = SAME
    ) -> Load:
        """Send `rate` requests per second; latencies count from the time a request is due."""
        self._body.write_bytes(body)
        numbers = (rate, connections, seconds, *mix[1:], self._sent)
        command = [sys.executable, "-m", PACED, url, str(self._body), *map(str, numbers)]
        result = self._run(command)
        self._sent += result["requests"]
        requests = result["requests"]
        return Load(requests, requests / seconds, result["p50"] / 1000, result["p99"] / 1000)

    def _wrk(self, url: str, connections: int, seconds: float) -> dict[str, int]:
        options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout=60s"]
        self._environment["START"] = str(self._sent)
        result = self._run(["wrk", *options, "-s", SCRIPT, url])
        # wrk does not count the requests that are on their way at the end.
        self._sent += result["requests"] + 2 * connections
        return result

    def _run(self, command: list[str]) -> dict[str, int]:
        process = subprocess.run(
            ["taskset", "--cpu-list", self._cores, *command],  # noqa: S607
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            sys.exit(f"{command[0]} failed:\n{process.stdout}{process.stderr}")
        result: dict[str, int] = json.loads(lines[-1])
        if result["failed"]:
            sys.exit(
                f"{result['failed']} of {result['requests']} requests failed:\n{process.stdout}"
            )
        return result


WARM_UP = 0.1  # this share of the requests does not count
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main() -> None:
    """Send a review at a steady rate, and print one line of JSON with latencies in microseconds.

    The arguments are URL FILE RATE CONNECTIONS SECONDS EVERY RELEASE START. EVERY is how many
    requests come with one new template, and RELEASE how many with one new release; an EVERY of 0
    stands for requests that are all the same. START is the number of the first template and of the
    first release. The latency of a request counts from the time at which it is due. So it includes
    the wait for a free connection, if the server is too slow for the rate.
    """
    url, file, *numbers = sys.argv[1:]
    rate, connections, seconds, every, release, first = (float(number) for number in numbers)
    # `select` waits for microseconds, where `epoll` rounds up to whole milliseconds.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        mix = Mix("", int(every), int(release))
        client = PacedClient(url, Path(file).read_bytes(), mix, int(first))
        runner.run(client.run(int(rate * seconds), 1 / rate, int(connections)))
    latencies = sorted(client.latencies[int(WARM_UP * len(client.latencies)) :])
    p50, p99 = (round(latencies[int(share * len(latencies))] * 1e6) for share in (0.5, 0.99))
    result = {"requests": len(client.latencies), "p50": p50, "p99": p99, "failed": client.failed}
    print(json.dumps(result))


class PacedClient:
    """Sends the requests, and records their latencies in seconds and the number of failures."""

    def __init__(self, url: str, body: bytes, mix: Mix, first: int) -> None:
        self._url = urlsplit(url)
        head = f"POST {self._url.path} HTTP/1.1\r\nHost: {self._url.netloc}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._mix = mix
        self._number = self._template = self._release = first
        self._idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        self.latencies: list[float] = []
        self.failed = 0

    async def run(self, number: int, interval: float, connections: int) -> None:
        """Send `number` requests, `interval` seconds apart, over `connections` connections."""
        for _ in range(connections):
            self._idle.put_nowait(await self._connect())
        gc.disable()
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(number):
                due = start + n * interval
                await asyncio.sleep(max(due - time.perf_counter(), 0))
                group.create_task(self._send(due))

    def _next_request(self) -> bytes:
        if not self._mix.requests_per_template:
            return self._request
        self._number += 1
        self._template += self._number % self._mix.requests_per_template == 0
        self._release += self._number % self._mix.requests_per_release == 0
        return varied(self._request, self._number, self._template, self._release)

    async def _connect(self) -> Connection:
        # The benchmark started the server on this machine, so there is nothing to verify.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001
        return await asyncio.open_connection(self._url.hostname, self._url.port, ssl=context)

    async def _send(self, due: float) -> None:
        request = self._next_request()
        connection = await self._idle.get()
        reader, writer = connection
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        self.latencies.append(time.perf_counter() - due)
        self.failed += not head.startswith(b"HTTP/1.1 200 ")
        self._idle.put_nowait(connection)


if __name__ == "__main__":
    main()
