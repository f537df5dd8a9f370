"""Measure the reviews that take the webhook longest, and what a flood of them does to others.

First, each heavy review is decided in a process of its own, in every mode and by both webhooks. The
program prints the twenty that took longest, with their CPU time and the memory that they added.
Then one client sends ordinary reviews to a server at a steady rate, twice: alone, and while other
clients send heavy reviews as fast as they are answered. Server and clients have one CPU core each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.admission.load import SCRIPT, Client
from benchmarks.admission.reviews import encoded, gpu_pod
from benchmarks.admission.servers import create_certificate, gpuward_server
from policies.loading import load_policy
from rules.finding import Action
from tests.testkit.admission.heavy_manifests import heavy_manifests
from tests.testkit.admission.reviews import review_body
from webhook.admission.answer import encode
from webhook.admission.decider import Decider
from webhook.admission.review import decode

SHOWN = 20
RATE, CONNECTIONS, ATTACKERS = 50, 4, 8
MODES = (Action.DENY, Action.WARN)
TODAY = datetime.date(2026, 1, 1)
# Every rule, also those that are off by default.
POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
extends: [strict]
profiles: [ack]
rules: {idle-gpu-holder: {action: audit}}
"""


def main() -> int:
    """Run both measurements and return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    size = int(options.megabytes * 1_000_000)
    reviews = {name: json.dumps(review_body(m)).encode() for name, m in heavy_manifests(size)}
    slowest = _measure_each(reviews)
    _measure_flood([reviews[name] for name in slowest[:ATTACKERS]], options.seconds)
    return 0


def _measure_each(reviews: dict[str, bytes]) -> list[str]:
    """Print the slowest reviews; all names, the slowest first."""
    rows = sorted(((*_in_process(body), name) for name, body in reviews.items()), reverse=True)
    print(f"{'':<52}{'size MB':>8}{'CPU s':>8}{'memory MB':>11}")
    for seconds, megabytes, name in rows[:SHOWN]:
        size = len(reviews[name]) / 1e6
        print(f"{name:<52}{size:>8.2f}{seconds:>8.3f}{megabytes:>11.0f}", flush=True)
    print(f"highest of all {len(rows)}: {max(row[1] for row in rows):.0f} MB of memory")
    return [name for *_, name in rows]


def _in_process(body: bytes) -> tuple[float, float]:
    """The longest CPU time of a decision about `body`, and the memory that it added in MB."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_decide, args=(body, theirs))
    process.start()
    result: tuple[float, float] = ours.recv()
    process.join()
    return result


def _decide(body: bytes, pipe: Connection) -> None:
    decider = Decider(load_policy(POLICY, "policy"))
    before, longest = _peak_megabytes(), 0.0
    for decide in (decider.mutate, decider.validate):
        for mode in MODES:
            started = time.process_time()
            review = decode(body)
            encode(review, decide(review, mode, TODAY))
            longest = max(longest, time.process_time() - started)
    pipe.send((longest, _peak_megabytes() - before))


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _measure_flood(bodies: list[bytes], seconds: float) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:  # noqa: PLR2004
        sys.exit("the server and the clients need one CPU each")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate = create_certificate(folder)
        client = Client(folder, {cores[1]})
        ordinary: dict[str, Any] = {
            "body": encoded(gpu_pod()),
            "rate": RATE,
            "connections": CONNECTIONS,
            "seconds": seconds,
        }
        with gpuward_server(folder, cores[0], "quick", certificate) as server:
            url = f"https://{server.address}/mutate/deny?timeout=10s"
            alone = client.paced(url, **ordinary)
            flood = _start_flood(folder, url, bodies, seconds + 5, cores[1])
            time.sleep(2)  # until heavy reviews wait
            during = client.paced(url, **ordinary)
            answered = sum(_answered(process) for process in flood)
    print(f"\n{RATE} ordinary reviews/s for {seconds:g} s     p50 ms  p99 ms")
    for what, load in (("alone", alone), (f"beside {len(bodies)} heavy clients", during)):
        print(f"{what:<34}{load.p50:>8.1f}{load.p99:>8.1f}")
    print(f"the heavy clients got {answered} answers")


def _answered(process: subprocess.Popen[bytes]) -> int:
    """Return how many answers a client of the flood got to its reviews; wait for its end."""
    output = process.communicate()[0].splitlines()
    return sum(json.loads(line)["requests"] for line in output if line.startswith(b"{"))


def _start_flood(
    folder: Path, url: str, bodies: list[bytes], seconds: float, core: int
) -> list[subprocess.Popen[bytes]]:
    """Clients that send a body each, again as soon as it is answered."""
    processes = []
    for number, body in enumerate(bodies):
        file = folder / f"heavy-{number}.json"
        file.write_bytes(body)
        command = ["wrk", "-t1", "-c1", f"-d{seconds:.0f}s", "--timeout=60s", "-s"]
        processes.append(
            subprocess.Popen(
                ["taskset", "--cpu-list", str(core), *command, SCRIPT, url],  # noqa: S607
                env={
                    **os.environ,
                    "BODY": str(file),
                    "EVERY": "0",
                    "RELEASE_EVERY": "1",
                    "START": "0",
                },
                stdout=subprocess.PIPE,
            )
        )
    return processes
