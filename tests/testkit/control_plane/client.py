"""HTTPS requests to the API server over persistent connections."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections import deque
from typing import Any, NamedTuple

from tests.testkit.control_plane.processes import PATIENCE

WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
# The errors of an idle connection that the server has closed.
STALE_CONNECTION_ERRORS = (
    *(http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError),
    *(ssl.SSLEOFError, ssl.SSLZeroReturnError),
)


class Response(NamedTuple):
    """A response of the API server."""

    status: int
    #: The parsed JSON, or the text if it is not JSON
    body: Any
    #: The texts of the Warning headers, in order
    warnings: list[str]


class Client:
    """Sends requests as one user; any number of threads may use it.

    Each request takes an idle connection, or opens one, and returns it afterwards.
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
    ) -> Response:
        """Send a request and return the response, whatever its status.

        `body` is sent as JSON, or unchanged if it is bytes.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"Accept": "application/json", **self._headers, **(headers or {})}
        if data is not None:
            all_headers["Content-Type"] = content_type
        try:
            idle = self._idle.pop()
        except IndexError:
            return self._send(self._connection(), method, path, data, all_headers)
        try:
            return self._send(idle, method, path, data, all_headers)
        except STALE_CONNECTION_ERRORS:
            return self._send(self._connection(), method, path, data, all_headers)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=60 * PATIENCE
        )

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
    ) -> Response:
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
        return Response(
            response.status,
            _parsed(text) if is_json else text.decode(),
            [warning for warning in found if warning is not None],
        )


def _parsed(text: bytes) -> Any:
    """The parsed JSON, or the text if the nesting is too deep for Python's parser."""
    try:
        return json.loads(text)
    except RecursionError:
        return text.decode()


def _warning(header: str) -> str | None:
    """The text of a Warning header, which http.client has decoded as Latin-1."""
    found = WARNING.match(header.encode("latin-1").decode())
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None
