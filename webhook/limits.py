"""What one caller may cost: how large, how long, and how many at once.

A decision itself never waits, so what can pile up are requests whose body is still on its
way. Those are counted and bounded; a request that is there in full is answered at once,
and so no number of slow callers holds up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from aiohttp.web import BaseRequest, RequestPayloadError

MIB = 1024 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Limits(NamedTuple):
    """Bounds on the callers; times in seconds, sizes in bytes.

    Bodies above `small_body_bytes` share `large_bodies_bytes` while they are read. The API
    server keeps idle connections for 90 seconds; ours must live longer, or it would write
    into one that is being closed. It takes objects of 3 MiB, and a review holds two of them,
    in which it may write one character as six: a body that we did not read would be an
    object that passes unjudged. `brackets` are all `[` and `{`, in texts as well, because they
    cost the most: of what etcd stores, 1.5 MiB an object, two objects cannot hold more.
    """

    body_bytes: int = 64 * MIB
    brackets: int = 3_500_000
    small_body_bytes: int = MIB // 4
    large_bodies_bytes: int = 128 * MIB
    read_seconds: float = 2.0
    in_flight: int = 256
    connections: int = 1000
    handshake_seconds: float = 10.0
    goodbye_seconds: float = 2.0
    keep_alive_seconds: float = 180.0
    line_bytes: int = 8190
    header_bytes: int = 8190
    headers: int = 64


class Refused(Exception):  # noqa: N818  # it names what became of the call
    """A call that gets an HTTP error and no decision.

    `reason` is a word for the metrics.
    """

    def __init__(
        self, status: int, reason: str, text: str, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.headers = headers


class Gate:
    """Lets bodies in, as far as the limits allow."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.waiting = 0
        """How many requests wait for the rest of their body."""
        self.large_bytes = 0
        """How much is set aside for large bodies that are being read."""
        self._empty = asyncio.Event()
        self._empty.set()

    async def emptied(self) -> None:
        """Return when no request waits for its body."""
        await self._empty.wait()

    async def body(self, request: BaseRequest) -> bytes:
        """The whole body of `request`; Refused if it is too large, too late or one too many."""
        if "Content-Encoding" in request.headers:
            raise Refused(415, "encoding", "a body with a Content-Encoding is not read")
        length = request.content_length
        limit = self._limits.body_bytes
        if length is not None and length > limit:
            raise _too_large(limit)
        try:
            if request.content.is_eof():
                body = request.content.read_nowait()
            else:
                body = await self._awaited(request, limit if length is None else length)
        except RequestPayloadError as error:
            raise Refused(400, "malformed", "the body is not what its headers promise") from error
        except ConnectionError as error:
            raise Refused(400, "gone", "nobody is there to read this") from error
        if len(body) > limit:
            raise _too_large(limit)
        if len(body) > self._limits.brackets and _brackets(body) > self._limits.brackets:
            raise Refused(413, "too_large", f"more than {self._limits.brackets} brackets")
        return body

    async def _awaited(self, request: BaseRequest, size: int) -> bytes:
        """The body of `request`, at most `size` bytes and not all of it here yet."""
        limits = self._limits
        large = size if size > limits.small_body_bytes else 0
        if self.waiting >= limits.in_flight:
            raise _crowded("in_flight", "requests")
        if large and self.large_bytes + large > limits.large_bodies_bytes:
            raise _crowded("large_bodies", "large bodies")
        self.waiting += 1
        self.large_bytes += large
        self._empty.clear()
        try:
            async with asyncio.timeout(limits.read_seconds):
                return await _collected(request, limits.body_bytes)
        except TimeoutError as error:
            raise Refused(408, "slow", "the body took too long to arrive") from error
        finally:
            self.waiting -= 1
            self.large_bytes -= large
            if not self.waiting:
                self._empty.set()


async def _collected(request: BaseRequest, limit: int) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(_CONTINUE)
        request.writer.output_size = 0  # the answer itself has not begun
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _crowded(reason: str, what: str) -> Refused:
    # Without the header an API server does not try again.
    text = f"too many {what} are being read; try again"
    return Refused(429, reason, text, {"Retry-After": "1"})


def _too_large(limit: int) -> Refused:
    return Refused(413, "too_large", f"the body is larger than {limit} bytes")
