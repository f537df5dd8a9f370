"""An API server for faults that a real one cannot be made to have, and for size.

It speaks HTTP on this machine, lists objects page by page as API servers do, and makes each object
when a page needs it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


class Listed(NamedTuple):
    """The objects of one resource: how many, what makes the one with a number, and their kind.

    Objects of a cluster-scoped resource are in no namespace.
    """

    size: int
    make: Callable[[int], Json]
    kind: str = "Pod"
    is_namespaced: bool = True


class Fault(NamedTuple):
    """An answer in place of a page; status 0 breaks the connection in the middle of the page."""

    status: int
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}


class PagedServer:
    """Serves the lists at the paths of `listed`.

    `faults` are what requests are answered with, by their numbers from 0. `requests` are the
    queries that came. It applies nothing that is written: `writes` are the methods and paths,
    `written` what came with them, and `refusals` the answers to writes, by a part of the path.
    The token of a page is the number of its first object.
    """

    def __init__(self, listed: Mapping[str, Listed], faults: Mapping[int, Fault]) -> None:
        self.listed = listed
        self.faults = faults
        self.requests: list[dict[str, str]] = []
        self.refusals: dict[str, Fault] = {}
        self.writes: list[str] = []
        self.written: list[Json] = []
        self.url = ""

    def kubeconfig(self, folder: Path) -> str:
        """The name of a kubeconfig file for this server."""
        content = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "x"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = folder / "paged.kubeconfig"
        file.write_text(json.dumps(content), encoding="utf-8")
        return str(file)

    def page(self, path: str, query: Mapping[str, str]) -> bytes | None:
        """The page that a query asks for; None if nothing is listed at `path`."""
        if (found := self.listed.get(path)) is None:
            known = self._discovery().get(path)
            return json.dumps(known).encode() if known else None
        first = int(query.get("continue", "0"))
        end = min(found.size, first + int(query.get("limit", found.size)))
        metadata = {"continue": str(end)} if end < found.size else {}
        items = [found.make(number) for number in range(first, end)]
        version = _version(path).removeprefix("/apis/").removeprefix("/api/")
        content = {"apiVersion": version, "metadata": metadata, "items": items}
        return json.dumps(content).encode()

    def _discovery(self) -> dict[str, Json]:
        """By path, what the API server says about the resources that it lists.

        Each group prefers the version that `listed` has first.
        """
        found: dict[str, Json] = {}
        groups: dict[str, dict[str, Json]] = {}
        for path, listed in self.listed.items():
            version = found.setdefault(_version(path), {"resources": []})
            name = path.rpartition("/")[2]
            resource = {"name": name, "kind": listed.kind, "namespaced": listed.is_namespaced}
            version["resources"].append(resource)
            if path.startswith("/apis/"):
                _, _, group, number, _ = path.split("/")
                groups.setdefault(group, {})[number] = {"version": number}
        described = []
        for name, by_number in groups.items():
            versions = [*by_number.values()]
            described.append({"name": name, "versions": versions, "preferredVersion": versions[0]})
        return found | {"/apis": {"groups": described}}


def _version(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def paged_server(
    listed: Mapping[str, Listed], faults: Mapping[int, Fault] | None = None
) -> Iterator[PagedServer]:
    """Run such a server until the end of the block."""
    served = PagedServer(listed, faults or {})
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(served)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        served.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def _handler(served: PagedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            served.requests.append(query)
            page = served.page(url.path, query)
            fault = served.faults.get(len(served.requests) - 1)
            if fault is None:
                self._answer(200 if page else 404, page or b"{}")
            elif fault.status:
                self._answer(fault.status, json.dumps(fault.body).encode(), fault.headers)
            else:
                half = page or b"{}"
                self._answer(200, half, cut=len(half) // 2)
                self.close_connection = True

        def do_PATCH(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            served.written.append(json.loads(body or b"{}"))
            path = urlsplit(self.path).path
            served.writes.append(f"{self.command} {path}")
            found = [fault for part, fault in served.refusals.items() if part in path]
            fault = found[0] if found else Fault(200)
            self._answer(fault.status, json.dumps(fault.body).encode())

        do_POST = do_DELETE = do_PATCH  # noqa: N815  # the names of http.server

        def _answer(
            self, status: int, body: bytes, headers: Mapping[str, str] = {}, cut: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut])

        def handle(self) -> None:
            with suppress(ConnectionResetError):  # a client that has read enough
                super().handle()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
