"""Limits on callers: size, time, and number at once.

A decision never waits, so only requests whose body is still arriving can pile up. Those are counted
and limited. A request that has arrived is answered immediately, so slow callers, however many, do
not delay others. Where callers share a limit, the one that takes the most gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType

from aiohttp.web import BaseRequest, RequestPayloadError

from webhook.admission.callers import Caller
from webhook.fair_share import FairShare, NoRoomError
from webhook.settings import Limits

_CONTINUE_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class HttpError(Exception):
    """The request gets an HTTP error and no decision. `reason` is a label of the metrics."""

    def __init__(
        self, status: int, reason: str, text: str, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.headers = headers


class BodyReader:
    """Reads the bodies of requests within the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests = FairShare(limits.in_flight)
        self._large_bodies = FairShare(limits.large_bodies_bytes)
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def waiting(self) -> int:
        """Return how many requests wait for the rest of their body."""
        return self._requests.taken

    @property
    def reserved_large_body_bytes(self) -> int:
        """Return how many bytes are reserved for large bodies that are being read."""
        return self._large_bodies.taken

    async def wait_until_drained(self) -> None:
        """Return when no request waits for its body."""
        await self._empty.wait()

    async def read(self, request: BaseRequest) -> bytes:
        """The whole body of `request`; HttpError if it exceeds a limit or does not arrive."""
        if "Content-Encoding" in request.headers:
            raise HttpError(415, "encoding", "a body with a Content-Encoding is not read")
        length, limit = request.content_length, self._limits.body_bytes
        if length is None:  # each byte could come in a chunk of its own
            raise HttpError(411, "no_length", "a body without a Content-Length is not read")
        if length > limit:
            raise HttpError(413, "too_large", f"the body is larger than {limit} bytes")
        try:
            if request.content.is_eof():
                body = request.content.read_nowait()
            else:
                body = await self._wait_for(request, length)
        except RequestPayloadError as error:
            raise HttpError(400, "malformed", "the body is not what its headers promise") from error
        except ConnectionError as error:
            raise HttpError(400, "gone", "the caller closed the connection") from error
        if len(body) > self._limits.brackets and _count_brackets(body) > self._limits.brackets:
            raise HttpError(413, "too_large", f"more than {self._limits.brackets} brackets")
        return body

    async def _wait_for(self, request: BaseRequest, size: int) -> bytes:
        """The body of `request`, which has not arrived completely and has `size` bytes."""
        self._empty.clear()
        lost: list[HttpError] = []
        try:
            async with asyncio.timeout(self._limits.read_seconds) as timeout:
                with self._share(sharer_of(request.transport), size, timeout, lost):
                    return await _read_chunks(request)
        except TimeoutError as error:
            slow = HttpError(408, "slow", "the body took too long to arrive")
            raise (lost[0] if lost else slow) from error
        finally:
            if not self.waiting:
                self._empty.set()

    def _share(
        self, caller: str, size: int, timeout: asyncio.Timeout, lost: list[HttpError]
    ) -> ExitStack:
        """Hold what a body of `size` bytes takes. If another caller needs it, end the `timeout`.

        Then `lost` has the error. HttpError if there is no room.
        """
        large = size if size > self._limits.small_body_bytes else 0
        rooms = [(self._requests, 1, too_many("in_flight", "requests are being read"))]
        if large:
            error = too_many("large_bodies", "large bodies are being read")
            rooms.append((self._large_bodies, large, error))
        with ExitStack() as held:
            for room, units, error in rooms:  # before one takes anything from others
                try:
                    room.require((caller,), units)
                except NoRoomError:
                    raise error from None
            for room, units, error in rooms:

                def give_back(_is_own: bool, error: HttpError = error) -> None:  # noqa: FBT001
                    lost.append(error)
                    if not timeout.expired():
                        timeout.reschedule(asyncio.get_running_loop().time())

                held.enter_context(room.hold((caller,), units, give_back))
            return held.pop_all()


def caller_of(transport: asyncio.BaseTransport | None) -> Caller:
    """Return the caller of `transport` by its connection, which no client can write into a request.

    Without an address if the connection is closed.
    """
    if transport is None:
        return Caller("")
    address = transport.get_extra_info("peername")
    return Caller(str(address[0]) if address else "", bool(transport.get_extra_info("peercert")))


def sharer_of(transport: asyncio.BaseTransport | None) -> str:
    """By what the caller who uses `transport` shares limits and turns: its address.

    Empty for all callers with a certificate that the server has verified.
    """
    caller = caller_of(transport)
    return "" if caller.is_verified else caller.address


async def _read_chunks(request: BaseRequest) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(_CONTINUE_RESPONSE)
        request.writer.output_size = 0  # the response itself has not begun
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
    return bytes(body)


def _count_brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def too_many(reason: str, what: str) -> HttpError:
    """The error for a request that may be sent again; `what` says of what there are too many."""
    # The API server tries again only if this header is present.
    return HttpError(429, reason, f"too many {what}; try again", {"Retry-After": "1"})
