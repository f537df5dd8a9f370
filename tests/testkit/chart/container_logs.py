"""The part of a kubelet's API that `kubectl logs` uses."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

POLL_SECONDS = 0.2
#: The log of a pod, by namespace, name and whether the one before the last restart is asked for;
#: None if there is none
FindLog = Callable[[str, str, bool], Path | None]


class LogServer:
    """Answers `/containerLogs/NAMESPACE/POD/CONTAINER` over TLS, as API servers ask kubelets.

    Of the options of `kubectl logs` it knows `--follow`, `--previous`, `--tail` and
    `--limit-bytes`.
    """

    def __init__(self, find_log: FindLog, tls: ssl.SSLContext) -> None:
        handler = type("Handler", (_Handler,), {"find_log": staticmethod(find_log)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = Thread(target=self._server.serve_forever, name="container-logs")
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to answer; requests that follow a log end with the process."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    find_log: FindLog

    def do_GET(self) -> None:  # the name that the library calls
        url = urlsplit(self.path)
        options = {key: values[-1] for key, values in parse_qs(url.query).items()}
        match url.path.strip("/").split("/"):
            case ["containerLogs", namespace, pod, _container]:
                file = self.find_log(namespace, pod, options.get("previous") == "true")
            case _:
                file = None
        if file is None or not file.exists():
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self._send(file, options)

    def _send(self, file: Path, options: dict[str, str]) -> None:
        content = file.read_bytes()
        sent = len(content)
        if "tailLines" in options:
            lines = content.splitlines(keepends=True)
            content = b"".join(lines[max(0, len(lines) - int(options["tailLines"])) :])
        if "limitBytes" in options:
            content = content[: int(options["limitBytes"])]
        self.wfile.write(content)
        while options.get("follow") == "true":
            self.wfile.flush()
            time.sleep(POLL_SECONDS)
            with file.open("rb") as log:
                log.seek(sent)
                content = log.read()
            sent += len(content)
            self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing for each request."""
