"""Send load from another process: as much as the server can answer, or at a steady rate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.variation import SAME, Mix

PACED = "benchmarks.paced"
SCRIPT = str(Path(__file__).with_name("replicas.lua"))
MIN_REQUESTS = 20  # on each connection; a run with fewer is repeated for twice as long
MAX_SECONDS = 8.0


class Load(NamedTuple):
    """The result: the number of requests, the requests per second, and latencies in ms."""

    requests: int
    rate: float
    p50: float
    p99: float


class Client:
    """Sends reviews from the CPU cores in `cores`; it writes its files to `folder`.

    It sends `token`, if not empty, as a bearer token.
    """

    def __init__(self, folder: Path, cores: set[int], token: str = "") -> None:
        if not shutil.which("wrk"):
            sys.exit("this benchmark needs wrk: `apt-get install wrk`, or github.com/wg/wrk")
        self._cores = ",".join(map(str, sorted(cores)))
        self._body = folder / "body.json"
        self._sent = 0
        self._environment = {**os.environ, "BODY": str(self._body)}
        if token:
            self._environment["BEARER"] = token

    def closed(
        self, url: str, body: bytes, connections: int, seconds: float, mix: Mix = SAME
    ) -> Load:
        """Send for `seconds`; each connection sends its next request after the last response.

        Requests differ as `mix` says, and from all that were sent before.
        """
        self._body.write_bytes(body)
        self._environment["EVERY"] = str(mix.requests_per_template)
        self._environment["RELEASE_EVERY"] = str(mix.requests_per_release)
        result = self._wrk(url, connections, seconds)
        requests = result["requests"]
        while result["requests"] < MIN_REQUESTS * connections and seconds < MAX_SECONDS:
            # Other programs used the machine, and opening the connections took all the time.
            seconds *= 2
            result = self._wrk(url, connections, seconds)
            requests += result["requests"]
        rate = result["requests"] / result["us"] * 1e6
        return Load(requests, rate, result["p50"] / 1000, result["p99"] / 1000)

    def paced(
        self, url: str, body: bytes, rate: int, connections: int, seconds: float, mix: Mix = SAME
    ) -> Load:
        """Send `rate` requests per second; latencies count from the time a request is due."""
        self._body.write_bytes(body)
        numbers = (rate, connections, seconds, *mix[1:], self._sent)
        command = [sys.executable, "-m", PACED, url, str(self._body), *map(str, numbers)]
        result = self._run(command)
        self._sent += result["requests"]
        requests = result["requests"]
        return Load(requests, requests / seconds, result["p50"] / 1000, result["p99"] / 1000)

    def _wrk(self, url: str, connections: int, seconds: float) -> dict[str, int]:
        options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout=60s"]
        self._environment["START"] = str(self._sent)
        result = self._run(["wrk", *options, "-s", SCRIPT, url])
        # wrk does not count the requests that are on their way at the end.
        self._sent += result["requests"] + 2 * connections
        return result

    def _run(self, command: list[str]) -> dict[str, int]:
        process = subprocess.run(
            ["taskset", "--cpu-list", self._cores, *command],  # noqa: S607
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            sys.exit(f"{command[0]} failed:\n{process.stdout}{process.stderr}")
        result: dict[str, int] = json.loads(lines[-1])
        if result["failed"]:
            sys.exit(
                f"{result['failed']} of {result['requests']} requests failed:\n{process.stdout}"
            )
        return result
