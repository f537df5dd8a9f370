"""Load from another process: as much as a server takes, or at a steady pace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PACED = str(Path(__file__).with_name("paced.py"))
ENOUGH = 20  # requests on each connection, below which a run says nothing
LONGEST = 8.0  # seconds
_SCRIPT = """\
local file = io.open(os.getenv("BODY"), "rb")
wrk.method, wrk.body = "POST", file:read("*a")
wrk.headers["Content-Type"] = "application/json"
if os.getenv("TOKEN") then wrk.headers["Authorization"] = "Bearer " .. os.getenv("TOKEN") end
done = function(all, latency)
  local e = all.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  local form = "{\\"requests\\": %d, \\"us\\": %d, \\"p50\\": %d, \\"p99\\": %d, \\"failed\\": %d}"
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  io.write("\\n" .. string.format(form, all.requests, all.duration, p50, p99, failed) .. "\\n")
end
"""


class Load(NamedTuple):
    """What came of a load: how many requests in all; a second; latencies in milliseconds."""

    requests: int
    rate: float
    p50: float
    p99: float


class Client:
    """Sends reviews from the processors in `cores`; its files are in `folder`."""

    def __init__(self, folder: Path, cores: set[int], token: str = "") -> None:
        if not shutil.which("wrk"):
            sys.exit("wrk is needed to make the load: `apt-get install wrk`, or github.com/wg/wrk")
        self._cores = ",".join(map(str, sorted(cores)))
        self._body, self._script = folder / "body.json", folder / "wrk.lua"
        self._script.write_text(_SCRIPT, encoding="ascii")
        self._environment = {**os.environ, "BODY": str(self._body)}
        if token:
            self._environment["TOKEN"] = token

    def closed(self, url: str, body: bytes, connections: int, seconds: float) -> Load:
        """Each connection sends its next request when it has the answer to the last one."""
        self._body.write_bytes(body)
        found = self._wrk(url, connections, seconds)
        sent = found["requests"]
        while found["requests"] < ENOUGH * connections and seconds < LONGEST:
            # Others kept the machine busy, and opening the connections took all the time.
            seconds *= 2
            found = self._wrk(url, connections, seconds)
            sent += found["requests"]
        rate = found["requests"] / found["us"] * 1e6
        return Load(sent, rate, found["p50"] / 1000, found["p99"] / 1000)

    def paced(self, url: str, body: bytes, rate: int, connections: int, seconds: float) -> Load:
        """Requests fall due at a steady `rate`, and each waits from then on."""
        self._body.write_bytes(body)
        options = [url, str(self._body), str(rate), str(connections), str(seconds)]
        found = self._run([sys.executable, PACED, *options])
        requests = found["requests"]
        return Load(requests, requests / seconds, found["p50"] / 1000, found["p99"] / 1000)

    def _wrk(self, url: str, connections: int, seconds: float) -> dict[str, int]:
        options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout=60s"]
        return self._run(["wrk", *options, "-s", str(self._script), url])

    def _run(self, command: list[str]) -> dict[str, int]:
        done = subprocess.run(
            ["taskset", "--cpu-list", self._cores, *command],  # noqa: S607
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
        found: dict[str, int] = json.loads(lines[-1])
        if found["failed"]:
            sys.exit(f"{found['failed']} of {found['requests']} requests failed:\n{done.stdout}")
        return found
