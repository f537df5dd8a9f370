"""Accept connections: not more than allowed at once, and none lost when the server stops.

The event loop's own servers can neither count connections in their TLS handshake nor reject one
before it, so this module accepts connections itself. If there are too many, one that waits is
closed, of the caller with most of these: callers that only hold connections do not keep others out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp.web import BaseRequest, RequestHandler, Response, Server, StreamResponse

from webhook.server.limits import sharer_of
from webhook.server.turns import CallerTurns
from webhook.settings import Limits

BACKLOG = 512
_ACCEPTED_PER_TURN = 64  # connections, before other tasks get a turn
_PAUSE_SECONDS = 0.5  # when the process has no file descriptors left
_UNREAD_TIMEOUT_MILLISECONDS = 20_000  # for a caller to read a response
_HIGHEST_PORT = 65535

TakeTurn = Callable[[], Awaitable[object]]
"""Returns when it is the turn of the caller of a request, who may have waited for something."""
HandleRequest = Callable[[BaseRequest, TakeTurn], Awaitable[Response]]


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


class _WaitingConnection(NamedTuple):
    """A connection that the server may close for another, and whose it is."""

    caller: str
    close: Callable[[], object]


class _ConnectionHandler(RequestHandler):
    """Answers what is no HTTP without repeating it, and without naming the library."""

    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Return the answer to a request that cannot be read, after which the connection ends."""
        del message  # repeats the request
        answer = super().handle_error(request, status, exc, "the request is no valid HTTP\n")
        answer.headers["Server"] = "gpuward"
        return answer


class HttpServer(Server):
    """A server whose callers take turns, and that knows which connections wait."""

    def __init__(self, handle: HandleRequest, **options: Any) -> None:
        super().__init__(self._answer, **options)
        self._options = options
        self._handle = handle
        self._turns = CallerTurns()
        self._awaited_turns: dict[RequestHandler, asyncio.Future[None]] = {}
        self.waiting: dict[asyncio.Task[None] | RequestHandler, _WaitingConnection] = {}
        """The connections that may be closed, the one that has waited longest first.

        They are in their TLS handshake, have no request, or wait for the turn of their caller.
        """
        self.open: set[RequestHandler] = set()
        """The connections that have had their TLS handshake.

        `connections` of the library also has closed ones, until their task has ended.
        """

    def __call__(self) -> RequestHandler:
        """Return the handler of a new connection."""
        return _ConnectionHandler(self, loop=asyncio.get_running_loop(), **self._options)

    def add_handshake(self, handshake: asyncio.Task[None], caller: str) -> None:
        """A connection begins its TLS handshake."""
        self.waiting[handshake] = _WaitingConnection(caller, handshake.cancel)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """A connection has had its TLS handshake."""
        super().connection_made(handler, transport)
        self.open.add(handler)
        self.waiting[handler] = _WaitingConnection(sharer_of(transport), transport.abort)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """A connection is closed. If it waits for a turn, it does not get one."""
        self.open.discard(handler)
        self.waiting.pop(handler, None)
        if turn := self._awaited_turns.get(handler):
            turn.cancel()
        super().connection_lost(handler, exc)

    def close_one_waiting(self) -> bool:
        """Close the connection that has waited longest, of the caller with most that wait.

        False if none waits.
        """
        if not self.waiting:
            return False
        numbers = Counter(waiting.caller for waiting in self.waiting.values())
        caller, _ = numbers.most_common(1)[0]
        longest = next(key for key, found in self.waiting.items() if found.caller == caller)
        self.waiting.pop(longest).close()
        return True

    async def _answer(self, request: BaseRequest) -> Response:
        handler = request.protocol
        connection = self.waiting.get(handler)
        take_turn = partial(self._take_turn, handler, connection)
        await take_turn()
        try:
            return await self._handle(request, take_turn)
        finally:
            self._add_waiting(handler, connection)

    async def _take_turn(
        self, handler: RequestHandler, connection: _WaitingConnection | None
    ) -> None:
        """Return when it is the turn of the caller; CancelledError if the connection is closed."""
        turn = self._turns.take(connection.caller if connection else "")
        if not turn.done():
            self._add_waiting(handler, connection)
            self._awaited_turns[handler] = turn
            try:
                await turn
            finally:
                del self._awaited_turns[handler]
        self.waiting.pop(handler, None)

    def _add_waiting(self, handler: RequestHandler, connection: _WaitingConnection | None) -> None:
        if connection is not None and handler.transport is not None:
            self.waiting.setdefault(handler, connection)


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
        """Return how many connections are open, including those in their handshake."""
        return len(self._server.open) + len(self._handshakes)

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
            if self._must_wait():
                return
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No file descriptors or memory are left: other connections must close first.
                self._on_rejected("resources")
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self.start)
                return
            if self._is_full and not self._close_one_waiting():
                self._on_rejected("connections")
                connection.close()
                continue
            task = self._loop.create_task(self._handshake(connection))
            self._handshakes.add(task)
            if self._tls:  # without it, a connection waits for nothing before it is made
                self._server.add_handshake(task, str(peer[0]) if peer else "")
            task.add_done_callback(self._handshake_done)

    @property
    def _is_full(self) -> bool:
        return self.connection_count >= self._limits.connections

    def _must_wait(self) -> bool:
        """Return whether there is room as soon as the event loop has made the connections so far.

        Without TLS that is its next turn, in which they begin to wait and can be closed.
        """
        return (
            not self._tls and self._is_full and not self._server.waiting and bool(self._handshakes)
        )

    def _close_one_waiting(self) -> bool:
        """Close a connection that waits, if one does."""
        has_closed = self._server.close_one_waiting()
        if has_closed:
            self._on_rejected("idle")
        return has_closed

    def _handshake_done(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._server.waiting.pop(task, None)

    async def _handshake(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        _limit_unread_answers(connection)
        limits = self._limits
        handler = self._server()
        try:
            await self._loop.connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=limits.handshake_seconds if self._tls else None,
                ssl_shutdown_timeout=limits.shutdown_seconds if self._tls else None,
            )
        except OSError:  # includes ssl.SSLError and timeouts
            handler.connection_lost(None)
            self._on_rejected("handshake")
        except asyncio.CancelledError:
            # The handshake may have ended in this moment. Event loops then close the connection and
            # do not say so, and it would be counted for ever.
            handler.connection_lost(None)
            raise


def _limit_unread_answers(connection: socket.socket) -> None:
    """Close the connection of a caller that does not read its responses."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_TIMEOUT_MILLISECONDS
        )
