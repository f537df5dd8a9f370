"""Send a review at a steady rate: `paced URL FILE RATE CONNECTIONS SECONDS EVERY RELEASE START`.

EVERY is how many requests come with one new template, and RELEASE how many with one new release.
An EVERY of 0 stands for requests that are all the same (`benchmarks.variation`). START is the
number of the first template and of the first release.

It prints one line of JSON with latencies in microseconds. The latency of a request counts from the
time at which the request is due. So it includes the wait for a free connection, if the server is
too slow for the rate.
"""

from __future__ import annotations

import asyncio
import gc
import json
import selectors
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.variation import Mix, varied

WARM_UP = 0.1  # this share of the requests does not count
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main() -> None:
    """Send the requests and print the result."""
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
