"""A client that sends a review so many times a second, whatever becomes of the answers.

Used as `paced.py URL FILE RATE CONNECTIONS SECONDS`; prints one line of JSON, in microseconds.
The clock of each request starts when it is due: one that finds no connection free, because the
server is behind, has waited too.
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

WARM_UP = 0.1  # of the requests, which are not counted
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main() -> None:
    """Send them and print what was seen."""
    url, file, *numbers = sys.argv[1:]
    rate, connections, seconds = (float(number) for number in numbers)
    # `select` waits for microseconds, where `epoll` rounds up to whole milliseconds.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        sending = Sending(url, Path(file).read_bytes())
        runner.run(sending.run(int(rate * seconds), 1 / rate, int(connections)))
    taken = sorted(sending.taken[int(WARM_UP * len(sending.taken)) :])
    p50, p99 = (round(taken[int(share * len(taken))] * 1e6) for share in (0.5, 0.99))
    found = {"requests": len(sending.taken), "p50": p50, "p99": p99, "failed": sending.failed}
    print(json.dumps(found))


class Sending:
    """The requests, how long each took, and how many failed."""

    def __init__(self, url: str, body: bytes) -> None:
        self._place = urlsplit(url)
        head = f"POST {self._place.path} HTTP/1.1\r\nHost: {self._place.netloc}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        self.taken: list[float] = []
        self.failed = 0

    async def run(self, number: int, interval: float, connections: int) -> None:
        """Send `number` requests, `interval` seconds apart."""
        for _ in range(connections):
            self._idle.put_nowait(await self._connected())
        gc.disable()
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(number):
                due = started + n * interval
                await asyncio.sleep(max(due - time.perf_counter(), 0))
                group.create_task(self._send(due))

    async def _connected(self) -> Connection:
        # The server is on this machine: there is nobody to mistake for it.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001
        return await asyncio.open_connection(self._place.hostname, self._place.port, ssl=context)

    async def _send(self, due: float) -> None:
        connection = await self._idle.get()
        reader, writer = connection
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        self.taken.append(time.perf_counter() - due)
        self.failed += not head.startswith(b"HTTP/1.1 200 ")
        self._idle.put_nowait(connection)


if __name__ == "__main__":
    main()
