"""Serves a function over HTTPS on this machine, in the place of a webhook."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """A GET or POST request: its path, its Host header and its body."""

    path: str
    host: str
    body: bytes


class Answer(NamedTuple):
    """An answer that is sent back."""

    body: bytes
    status: int = 200


@contextmanager
def https_server(
    respond: Callable[[Request], Answer],
    context: ssl.SSLContext,
    address: tuple[str, int] = ("127.0.0.1", 0),
) -> Iterator[int]:
    """Answer GET and POST requests with `respond` until the end of the block; yields the port."""
    with ThreadingHTTPServer(address, _handler(respond)) as server:
        # API servers keep their connections open, and the server need not wait for those.
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _handler(respond: Callable[[Request], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # send head and body at once, which avoids a delay between them

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = respond(Request(self.path, self.headers["Host"], body))
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
