"""The requests of the soak test, sent over connections that open and close."""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE = json.loads((Path(__file__).parents[1] / "webhook" / "sample-review.json").read_bytes())
REQUESTS_PER_CONNECTION = 100


class SoakRequest(NamedTuple):
    """The path and body of a request, and the expected HTTP status."""

    path: str
    body: bytes
    status: int


def soak_requests() -> list[SoakRequest]:
    """Return requests of every kind; the common ones occur five times."""
    all_devices = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    padding = [{"name": f"SETTING_{n}", "value": f"value {n}"} for n in range(40_000)]
    gpu = {"requests": {"nvidia.com/gpu": "1"}}
    fixed, large_fixed, refused, unrelated, large = (
        body(number, {"resources": resources, "env": env})
        for number, resources, env in (
            (1, gpu, all_devices),
            (8, gpu, [*padding[:30], *all_devices]),
            (1, {}, all_devices),
            (1, {}, padding[:8]),
            (1, {}, padding),
        )
    )
    common = [
        SoakRequest(f"/{webhook}/{mode}", review, 200)
        for review in (fixed, large_fixed, refused, unrelated)
        for webhook in ("mutate", "validate")
        for mode in ("deny", "warn", "audit")
    ]
    malformed = [fixed[:-1], b"", b"[]", b"\xff" * 100, b"[" * 100_000, b'{"request": 1}']
    invalid = [SoakRequest("/mutate/deny", text, 400) for text in malformed]
    single = [SoakRequest("/nowhere", fixed, 404), SoakRequest("/validate/deny", large, 200)]
    return common * 5 + invalid + single


def body(number: int, fields: dict[str, Any]) -> bytes:
    """Return the review of a pod with `number` containers, each with `fields`."""
    containers = [{"name": f"c{n}", "image": "example/app:1", **fields} for n in range(number)]
    pod = {**SAMPLE["request"]["object"], "spec": {"containers": containers}}
    return json.dumps({**SAMPLE, "request": {**SAMPLE["request"], "object": pod}}).encode()


class Clients:
    """Threads that send the requests until `stop()`."""

    def __init__(self, address: str, tls: ssl.SSLContext, threads: int) -> None:
        self._address = address
        self._tls = tls
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        #: The number of answers, by expected status, and by actual status or error
        self.answers: Counter[tuple[int, str]] = Counter()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads and wait for their end."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        requests = itertools.cycle(soak_requests())
        while not self._stopping.is_set():
            connection = http.client.HTTPSConnection(self._address, context=self._tls, timeout=30)
            for request in itertools.islice(requests, REQUESTS_PER_CONNECTION):
                if self._stopping.is_set():
                    break
                self.answers[request.status, self._send(connection, request)] += 1
            connection.close()

    @staticmethod
    def _send(connection: http.client.HTTPSConnection, request: SoakRequest) -> str:
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", request.path, request.body, headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return type(error).__name__
        return str(response.status)
