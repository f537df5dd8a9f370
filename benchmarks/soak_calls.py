"""The calls of the soak: of every kind, over connections that come and go."""

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
CALLS_A_CONNECTION = 100


class Call(NamedTuple):
    """What is sent, and the status of its answer."""

    path: str
    body: bytes
    status: int


def calls() -> list[Call]:
    """One of each kind, with the common ones more often."""
    bad = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    padding = [{"name": f"SETTING_{n}", "value": f"value {n}"} for n in range(40_000)]
    gpu = {"requests": {"nvidia.com/gpu": "1"}}
    fixed, large_fixed, refused, unrelated, large = (
        body(number, {"resources": resources, "env": env})
        for number, resources, env in (
            (1, gpu, bad),
            (8, gpu, [*padding[:30], *bad]),
            (1, {}, bad),
            (1, {}, padding[:8]),
            (1, {}, padding),
        )
    )
    often = [
        Call(f"/{webhook}/{mode}", sent, 200)
        for sent in (fixed, large_fixed, refused, unrelated)
        for webhook in ("mutate", "validate")
        for mode in ("deny", "warn", "audit")
    ]
    malformed = [fixed[:-1], b"", b"[]", b"\xff" * 100, b"[" * 100_000, b'{"request": 1}']
    wrong = [Call("/mutate/deny", sent, 400) for sent in malformed]
    return often * 5 + wrong + [Call("/nowhere", fixed, 404), Call("/validate/deny", large, 200)]


def body(number: int, fields: dict[str, Any]) -> bytes:
    """The review of a pod with so many containers."""
    containers = [{"name": f"c{n}", "image": "example/app:1", **fields} for n in range(number)]
    pod = {**SAMPLE["request"]["object"], "spec": {"containers": containers}}
    return json.dumps({**SAMPLE, "request": {**SAMPLE["request"], "object": pod}}).encode()


class Clients:
    """Threads that call in turn until `stop()`."""

    def __init__(self, address: str, tls: ssl.SSLContext, threads: int) -> None:
        self._address = address
        self._tls = tls
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        #: How many answers, by what was expected and what came
        self.answers: Counter[tuple[int, str]] = Counter()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End them."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        mix = itertools.cycle(calls())
        while not self._stopping.is_set():
            connection = http.client.HTTPSConnection(self._address, context=self._tls, timeout=30)
            for call in itertools.islice(mix, CALLS_A_CONNECTION):
                if self._stopping.is_set():
                    break
                self.answers[call.status, self._answer(connection, call)] += 1
            connection.close()

    @staticmethod
    def _answer(connection: http.client.HTTPSConnection, call: Call) -> str:
        try:
            connection.request("POST", call.path, call.body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return type(error).__name__
        return str(response.status)
