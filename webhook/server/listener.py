"""Accept connections: not more than allowed at once, and none lost when the server stops.

The event loop's own servers can neither count connections in their TLS handshake nor reject one
before it, so this module accepts connections itself. If there are too many, the one that has waited
longest for its caller is closed: callers that only hold connections do not keep others out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp.web import BaseRequest, RequestHandler, Response, Server

from webhook.server.limits import Limits

BACKLOG = 512
_ACCEPTED_PER_TURN = 64  # connections, before other tasks get a turn
_PAUSE_SECONDS = 0.5  # when the process has no file descriptors left
_UNREAD_TIMEOUT_MILLISECONDS = 20_000  # for a caller to read a response
_HIGHEST_PORT = 65535

HandleRequest = Callable[[BaseRequest], Awaitable[Response]]


class AddressError(ValueError):
    """The server cannot listen on this address; the message says why."""


def listening_socket(address: str) -> socket.socket:
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
        # The library appends the address, which the message has already.
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


class HttpServer(Server):
    """A server that knows which connections wait for their callers."""

    def __init__(self, handle: HandleRequest, **options: Any) -> None:
        super().__init__(self._answer, **options)
        self._handle = handle
        self.waiting: dict[asyncio.Task[None] | RequestHandler, Callable[[], object]] = {}
        """How to close each connection, the one that has waited longest first.

        It is in its TLS handshake, or no request of it is being answered.
        """

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """A connection has had its TLS handshake."""
        super().connection_made(handler, transport)
        self.waiting[handler] = transport.abort

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """A connection is closed."""
        self.waiting.pop(handler, None)
        super().connection_lost(handler, exc)

    async def _answer(self, request: BaseRequest) -> Response:
        handler = request.protocol
        close = self.waiting.pop(handler, None)
        try:
            return await self._handle(request)
        finally:
            if close is not None and handler.transport is not None:
                self.waiting[handler] = close


def http_server(handle: HandleRequest, limits: Limits, logger: logging.Logger) -> HttpServer:
    """A server that speaks HTTP; `logger` gets a record for each request that is no HTTP."""
    return HttpServer(
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
    """Passes connections on one socket to `server`, over TLS if a context is given.

    `on_rejected` is called with a reason for every connection that is closed before a request.
    """

    def __init__(
        self,
        server: HttpServer,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        limits: Limits,
        on_rejected: Callable[[str], None],
    ) -> None:
        self._server = server
        self._socket = listening
        self._tls = tls
        self._limits = limits
        self._on_rejected = on_rejected
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def connection_count(self) -> int:
        """How many connections are open, including those in their handshake."""
        return len(self._server.connections) + len(self._handshakes)

    def start(self) -> None:
        """Start to accept connections."""
        self._pause = None
        self._socket.settimeout(0)
        self._loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Accept connections that have already arrived, and then no more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._accept(BACKLOG)
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()

    async def wait_for_handshakes(self) -> None:
        """Wait until no connection is in its handshake."""
        while self._handshakes:
            await asyncio.wait(self._handshakes)

    def _accept(self, limit: int = _ACCEPTED_PER_TURN) -> None:
        for _ in range(limit):
            try:
                connection, _peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No file descriptors or memory are left: other connections must close first.
                self._on_rejected("resources")
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self.start)
                return
            if (
                self.connection_count >= self._limits.connections
                and not self._close_longest_waiting()
            ):
                self._on_rejected("connections")
                connection.close()
                continue
            task = self._loop.create_task(self._handshake(connection))
            self._handshakes.add(task)
            self._server.waiting[task] = task.cancel
            task.add_done_callback(self._handshake_done)

    def _close_longest_waiting(self) -> bool:
        """Close the connection that has waited longest for its caller, if one does."""
        waiting = self._server.waiting
        if not waiting:
            return False
        longest = next(iter(waiting))
        waiting.pop(longest)()
        self._on_rejected("idle")
        return True

    def _handshake_done(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._server.waiting.pop(task, None)

    async def _handshake(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        _limit_unread_answers(connection)
        limits = self._limits
        try:
            await self._loop.connect_accepted_socket(
                self._server,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=limits.handshake_seconds if self._tls else None,
                ssl_shutdown_timeout=limits.shutdown_seconds if self._tls else None,
            )
        except OSError:  # includes ssl.SSLError and timeouts
            self._on_rejected("handshake")


def _limit_unread_answers(connection: socket.socket) -> None:
    """Close the connection of a caller that does not read its responses."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_TIMEOUT_MILLISECONDS
        )
