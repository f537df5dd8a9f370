"""Forwards each new connection to one endpoint of a Service, as kube-proxy does."""

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
# Closing with this option resets the connection instead of shutting it down.
_RESET = struct.pack("ii", 1, 0)


class Forwarder:
    """Listens at the Service's own `address` and `port` until the end of the block.

    New connections go to the endpoints (HOST:PORT) in turn. As with kube-proxy, a connection
    outlives the removal of its endpoint, and without an endpoint a new connection is reset.
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
        #: The address from which to connect to endpoints, as where kube-proxy masquerades
        self.source = ""

    def add(self, endpoint: str) -> None:
        """Send new connections to this endpoint too."""
        self._endpoints = (*self._endpoints, endpoint)

    def remove(self, endpoint: str) -> None:
        """Send no new connections to this endpoint."""
        self._endpoints = tuple(e for e in self._endpoints if e != endpoint)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._accept, self._address, self._port, backlog=512)
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
        await asyncio.sleep(0)  # aborted transports are notified in the next iteration of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = self._loop.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it starts does not close its connection.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward both directions of one connection until both ends have closed it."""
        endpoints = self._endpoints
        ends = [writer]
        try:
            if not endpoints:
                raise ConnectionRefusedError
            host, _, port = endpoints[next(self._turns) % len(endpoints)].rpartition(":")
            endpoint_reader, endpoint_writer = await asyncio.open_connection(
                host, int(port), local_addr=(self.source, 0) if self.source else None
            )
            ends.append(endpoint_writer)
            await asyncio.gather(_copy(reader, endpoint_writer), _copy(endpoint_reader, writer))
        except OSError:
            for end in ends:
                _reset(end)
        finally:
            # Close all before waiting: a cancellation while waiting would leave the other one open.
            for end in ends:
                end.close()
            for end in ends:
                with contextlib.suppress(OSError):
                    await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):  # the peer may be gone already
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
