"""Plain-text HTTP responses."""

from __future__ import annotations

from aiohttp.web import Response

from webhook.server.limits import HttpError

_PLAIN = {"Content-Type": "text/plain; charset=utf-8", "Server": "gpuward"}
# After these the rest of the body is still on the connection.
_NOT_REUSABLE = (408, 413)


def text_response(text: str, status: int = 200) -> Response:
    """A response with one line of text."""
    return Response(body=f"{text}\n".encode(), status=status, headers=_PLAIN)


def error_response(error: HttpError) -> Response:
    """The response for `error`; the connection is closed if it cannot be used again."""
    headers = {**_PLAIN, **error.headers}
    response = Response(body=f"{error}\n".encode(), status=error.status, headers=headers)
    if error.status in _NOT_REUSABLE:
        response.force_close()
    return response
