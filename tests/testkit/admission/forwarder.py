"""What kube-proxy does for a Service: pass each new connection on to one of its endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from types import TracebackType
from typing import Self

_CHUNK = 256 * 1024
# Closing with this option resets the connection instead of ending it in good order.
_RESET = struct.pack("ii", 1, 0)


class Forwarder:
    """Listens at the Service's own `address` and `port` until the block is left.

    New connections go to the endpoints (HOST:PORT) in turn. Who is connected stays connected
    when its endpoint is removed, as with kube-proxy, and with no endpoint a connection is
    reset.
    """

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self._endpoints: tuple[str, ...] = ()
        self._turns = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        #: How many connections have been accepted so far
        self.accepted = 0

    def add(self, endpoint: str) -> None:
        """Send new connections there too."""
        self._endpoints = (*self._endpoints, endpoint)

    def remove(self, endpoint: str) -> None:
        """Send no new connection there any more."""
        self._endpoints = tuple(e for e in self._endpoints if e != endpoint)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._taken, self._address, self._port, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # what was aborted is told so in the next turn of the loop

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = self._loop.create_task(self._joined(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it has begun closes nothing.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both directions of one connection, until both ends have closed it."""
        endpoints = self._endpoints
        ends = [writer]
        try:
            if not endpoints:
                raise ConnectionRefusedError
            host, _, port = endpoints[next(self._turns) % len(endpoints)].rpartition(":")
            there, onward = await asyncio.open_connection(host, int(port))
            ends.append(onward)
            await asyncio.gather(_passed(reader, onward), _passed(there, writer))
        except OSError:
            for end in ends:
                _reset(end)
        finally:
            # All first: who is cancelled while waiting for one would leave the other open.
            for end in ends:
                end.close()
            for end in ends:
                with contextlib.suppress(OSError):
                    await end.wait_closed()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):  # it may have gone meanwhile, which is no matter now
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
