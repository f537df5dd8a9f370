"""Plain HTTPS requests to the API server, over connections that are kept."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections import deque
from typing import Any, NamedTuple

WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
# What a kept connection says when the server has closed it meanwhile.
STALE = (
    *(http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError),
    *(ssl.SSLEOFError, ssl.SSLZeroReturnError),
)


class Answer(NamedTuple):
    """What the API server said."""

    status: int
    #: The parsed JSON, or the text where it is no JSON
    body: Any
    #: The texts of the Warning headers, in order
    warnings: list[str]


class Client:
    """Asks as one user; any number of threads may use it.

    Each request takes an idle connection, or makes one, and gives it back afterwards.
    """

    def __init__(self, port: int, context: ssl.SSLContext, token: str | None = None) -> None:
        self._port = port
        self._context = context
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._idle: deque[http.client.HTTPSConnection] = deque()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Send `body` (sent as JSON, or as it is if it is bytes) and return the answer.

        No status is an error here.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Accept": "application/json", **self._headers, **(headers or {})}
        if data is not None:
            sent["Content-Type"] = content_type
        try:
            kept = self._idle.pop()
        except IndexError:
            return self._send(self._connection(), method, path, data, sent)
        try:
            return self._send(kept, method, path, data, sent)
        except STALE:
            return self._send(self._connection(), method, path, data, sent)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=60
        )

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
    ) -> Answer:
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        is_json = response.headers.get_content_type() == "application/json"
        found = [_warning(value) for value in response.headers.get_all("Warning", [])]
        return Answer(
            response.status,
            _parsed(text) if is_json else text.decode(),
            [warning for warning in found if warning is not None],
        )


def _parsed(text: bytes) -> Any:
    """The JSON, or the text itself where it is nested more deeply than Python reads it."""
    try:
        return json.loads(text)
    except RecursionError:
        return text.decode()


def _warning(header: str) -> str | None:
    """The text of a Warning header; the library takes its bytes for Latin-1."""
    found = WARNING.match(header.encode("latin-1").decode())
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None
