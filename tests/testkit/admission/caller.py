"""A client of the webhook on one connection, which can also send malformed requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from webhook.dev import SAMPLE_REVIEW_FILE

REVIEW = Path(SAMPLE_REVIEW_FILE).read_bytes()
TIMEOUT_SECONDS = 60  # seconds until a test gives up on something that must happen


class Reply(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def response(self) -> dict[str, Any]:
        """The `response` of the AdmissionReview in the body."""
        found: dict[str, Any] = json.loads(self.body)["response"]
        return found


class Caller:
    """A client with one connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self) -> Reply:
        """The next answer."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().strip().split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
            status = int(first.split()[1])
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Reply(status, headers, body)

    async def post(self, path: str, body: bytes = REVIEW, **headers: str) -> Reply:
        """Send a review and read the answer."""
        await self.send(request(path, body, **headers))
        return await self.reply()

    async def closed(self) -> bool:
        """Return whether the server closes the connection without sending another byte."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self.reader.read(1) == b""
            except OSError:
                return True

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def request(path: str, body: bytes = REVIEW, **headers: str) -> bytes:
    """The bytes of a POST."""
    lines = {"Host": "gpuward", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
