"""Accepts connections: no more than allowed at once, none lost when it stops.

The event loop's own servers can neither count connections that are still in their handshake
nor turn one away before it, so accepting is done here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp.web import BaseRequest, Response, Server

from webhook.limits import Limits

BACKLOG = 512
_AT_ONCE = 64  # accepted before others get a turn
_PAUSE_SECONDS = 0.5  # when the process has no descriptor left
_UNREAD_MILLISECONDS = 20_000  # how long an answer may lie unread
_HIGHEST_PORT = 65535

Handle = Callable[[BaseRequest], Awaitable[Response]]


class AddressError(ValueError):
    """An address that cannot be listened on; the text says why."""


def open_socket(address: str) -> socket.socket:
    """A listening socket for `HOST:PORT`; no HOST means every address, IPv4 and IPv6."""
    host, port = parse_address(address)
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104
        family, *_, place = found[0]
        return socket.create_server((place[0], port), family=family, backlog=BACKLOG)
    except OSError as error:
        # The library appends the address, which stands here already.
        why = (error.strerror or str(error)).partition(" (while ")[0].lower()
        raise AddressError(f"cannot listen on {address}: {why}") from error


def parse_address(address: str) -> tuple[str, int]:
    """Host (maybe empty, without brackets) and port of `HOST:PORT`; AddressError if it is not."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise AddressError(f"{address!r} is not HOST:PORT; leave out HOST for every address")
    if int(port) > _HIGHEST_PORT:
        raise AddressError(f"{address!r}: a port is 1 to {_HIGHEST_PORT}")
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise AddressError(f"{address!r}: an IPv6 address stands in brackets, as in [::1]:{port}")
    return host[1:-1] if bracketed else host, int(port)


def http_server(handle: Handle, limits: Limits, logger: logging.Logger) -> Server:
    """What speaks HTTP on the connections: `handle` answers, `logger` hears of what is no HTTP."""
    return Server(
        handle,
        access_log=None,
        logger=logger,
        auto_decompress=False,
        keepalive_timeout=limits.keep_alive_seconds,
        lingering_time=limits.read_seconds,
        max_line_size=limits.line_bytes,
        max_field_size=limits.header_bytes,
        max_headers=limits.headers,
    )


class Listener:
    """Hands connections on one socket to `server`, over TLS if a context is given.

    `turned_away` is told a word for every connection that did not come to a request.
    """

    def __init__(
        self,
        server: Server,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        limits: Limits,
        turned_away: Callable[[str], None],
    ) -> None:
        self._server = server
        self._socket = listening
        self._tls = tls
        self._limits = limits
        self._turned_away = turned_away
        self._greetings: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many connections are open, those in their handshake included."""
        return len(self._server.connections) + len(self._greetings)

    def start(self) -> None:
        """Begin to accept."""
        self._pause = None
        self._socket.settimeout(0)
        self._loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Accept what has already arrived, and then no more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._accept(BACKLOG)
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()

    async def greeted(self) -> None:
        """Return when no connection is in its handshake any more."""
        while self._greetings:
            await asyncio.wait(self._greetings)

    def _accept(self, most: int = _AT_ONCE) -> None:
        for _ in range(most):
            try:
                connection, _peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors or no memory left: others must leave first
                self._turned_away("resources")
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self.start)
                return
            if self.connections >= self._limits.connections:
                self._turned_away("connections")
                connection.close()
                continue
            task = self._loop.create_task(self._greet(connection))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    async def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        _expect_reading(connection)
        limits = self._limits
        try:
            await self._loop.connect_accepted_socket(
                self._server,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=limits.handshake_seconds if self._tls else None,
                ssl_shutdown_timeout=limits.goodbye_seconds if self._tls else None,
            )
        except OSError:  # ssl.SSLError and the time-outs are of this kind
            self._turned_away("handshake")


def _expect_reading(connection: socket.socket) -> None:
    """Give up on a caller that takes no answer off its connection."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MILLISECONDS)
