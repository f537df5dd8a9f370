"""An HTTP proxy that leads every connection to one port of this machine, whatever its name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class ConnectProxy(NamedTuple):
    """A running proxy: its port, and the addresses to which it has led."""

    port: int
    targets: list[str]


@contextmanager
def connect_proxy(server_port: int, *, authorization: str | None = None) -> Iterator[ConnectProxy]:
    """Lead connections to `server_port` until the end of the block.

    Clients must send the header `Proxy-Authorization` with `authorization`, if it is given.
    """
    targets: list[str] = []
    handler = _handler(server_port, authorization, targets)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # Clients keep their connections open, and the server need not wait for those.
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield ConnectProxy(server.server_port, targets)
        finally:
            server.shutdown()
            thread.join()


def _handler(
    server_port: int, authorization: str | None, targets: list[str]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            if self.headers["Proxy-Authorization"] != authorization:
                self.send_error(407)
                return
            targets.append(self.path)
            with socket.create_connection(("127.0.0.1", server_port)) as server:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_copy, args=(server, self.connection), daemon=True)
                back.start()
                _copy(self.connection, server)
                back.join()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Send on what comes, until the end of it."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
