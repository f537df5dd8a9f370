"""Measure the throughput and latency of the admission server over TLS, against a baseline.

The baseline is an aiohttp handler that decodes the review and answers with a constant patch of the
same size. The client runs in another process on another core. It sends load to both servers in
turn, in several short runs, of which the best one counts. The figures are shares of what the
baseline reaches. On a machine that other programs use too, only the share by CPU time is reliable.

Needs two CPUs and wrk.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch

from benchmarks.load import Client, Load
from benchmarks.reviews import encoded, gpu_pod, large_gpu_pod, unrelated_pod
from benchmarks.served import (
    ServerProcess,
    Variant,
    baseline_server,
    create_certificate,
    gpuward_server,
)

PACED_RATE, PACED_CONNECTIONS = 500, 20
NAMES: dict[Variant, str] = {"quick": "orjson and uvloop", "plain": "json and asyncio"}


class Case(NamedTuple):
    """A review, its path, and the baseline's path for a response of the same size.

    `patch` is the patch in the server's response, in base64; empty if there is none.
    """

    name: str
    path: str
    baseline: str
    body: bytes
    patch: str


class Run(NamedTuple):
    """One short run against one server."""

    load: Load
    cpu: float  # microseconds of CPU time for each request


def main() -> int:
    """Run the measurements, print them, and return 0."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:  # noqa: PLR2004
        sys.exit("the server and the client need one CPU each")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate = create_certificate(folder)
        client = Client(folder, {cores[1]})
        for variant in options.variants:
            with gpuward_server(folder, cores[0], variant, certificate) as server:
                cases = list(_cases(server))
                patches = {case.baseline: case.patch for case in cases}
                with baseline_server(folder, cores[0], variant, certificate, patches) as baseline:
                    print(f"\n{NAMES[variant]}")
                    _measure(client, server, baseline, cases, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=[*NAMES])
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of short runs for each figure"
    )
    parser.add_argument("--seconds", type=int, default=1, help="length of one short run")
    parser.add_argument(
        "--paced-seconds", type=int, default=4, help="length of one run at a steady rate"
    )
    return parser.parse_args()


def _cases(server: ServerProcess) -> Iterator[Case]:
    pods = {"4 KB": gpu_pod(), "30 KB": large_gpu_pod(), "unrelated": unrelated_pod()}
    for name, pod in pods.items():
        body = encoded(pod)
        patch = server.send_review("/mutate/deny", body).get("patch", "")
        yield Case(f"{name}, mutate", "/mutate/deny", f"/{len(patch)}", body, patch)
        fixed = _fixed(pod, patch)
        if not server.send_review("/validate/deny", fixed)["allowed"]:
            sys.exit(f"{name}: the fixed pod is refused")
        yield Case(f"{name}, validate", "/validate/deny", "/0", fixed, "")
        if patch:
            yield Case(f"{name} unfixed, validate", "/validate/deny", "/0", body, "")


def _fixed(pod: dict[str, Any], patch: str) -> bytes:
    """Return the review of the pod after an API server has applied `patch`, which is in base64."""
    operations = json.loads(base64.b64decode(patch) or "[]")
    fixed: dict[str, Any] = jsonpatch.apply_patch(pod, operations)
    return encoded(fixed)


def _measure(
    client: Client,
    server: ServerProcess,
    baseline: ServerProcess,
    cases: list[Case],
    options: argparse.Namespace,
) -> None:
    print("`base` is the baseline: a handler that answers with a constant patch.")
    header = f"{'':<24}{'connections':>11}{'requests/s':>12}{'base':>8}{'share':>7}{'(runs)':>12}"
    print(f"{header}{'by CPU':>8}{'p50 ms':>8}{'base':>7}{'p99 ms':>8}{'base':>7}  CPU µs, base")
    for case in cases:
        for connections in options.connections:
            send = partial(
                client.closed, body=case.body, connections=connections, seconds=options.seconds
            )
            _show(case.name, connections, _in_turns(server, baseline, case, send, options.rounds))
    print(f"{PACED_RATE} requests/s of 30 KB, mutate, at a steady pace, and memory in all runs:")
    large = next(case for case in cases if case.name == "30 KB, mutate")
    send = partial(
        client.paced,
        body=large.body,
        rate=PACED_RATE,
        connections=PACED_CONNECTIONS,
        seconds=options.paced_seconds,
    )
    turns = _in_turns(server, baseline, large, send, options.rounds)
    for process, runs in zip((server, baseline), zip(*turns, strict=True), strict=True):
        _show_paced(process, runs)


def _in_turns(
    server: ServerProcess,
    baseline: ServerProcess,
    case: Case,
    send: Callable[[str], Load],
    rounds: int,
) -> list[tuple[Run, Run]]:
    sides = ((server, case.path), (baseline, case.baseline))
    return [(_run(*sides[0], send), _run(*sides[1], send)) for _ in range(rounds)]


def _run(server: ServerProcess, path: str, send: Callable[[str], Load]) -> Run:
    before = server.cpu_seconds()
    load = send(f"https://{server.address}{path}")
    cpu_seconds = server.cpu_seconds() - before
    server.forget_log()
    return Run(load, cpu_seconds / max(load.requests, 1) * 1e6)


def _show(name: str, connections: int, pairs: list[tuple[Run, Run]]) -> None:
    """Print one line: the best run of each server, and the lowest and highest share of a run."""
    best, base = (max((pair[n].load for pair in pairs), key=lambda x: x.rate) for n in (0, 1))
    shares = sorted(pair[0].load.rate / max(pair[1].load.rate, 1) for pair in pairs)
    cpu = [min(pair[n].cpu for pair in pairs) for n in (0, 1)]
    print(
        f"{name:<24}{connections:>11}{best.rate:>12,.0f}{base.rate:>8,.0f}"
        f"{best.rate / base.rate:>7.0%}{f'({shares[0]:.0%}-{shares[-1]:.0%})':>12}"
        f"{cpu[1] / cpu[0]:>8.0%}{best.p50:>8.2f}{base.p50:>7.2f}{best.p99:>8.2f}{base.p99:>7.2f}"
        f"{cpu[0]:>8.0f}{cpu[1]:>7.0f}",
        flush=True,
    )


def _show_paced(server: ServerProcess, runs: Iterable[Run]) -> None:
    best = min(runs, key=lambda run: run.load.p99)
    print(
        f"  {server.name:<8} p50 {best.load.p50:.2f} ms, p99 {best.load.p99:.2f} ms, "
        f"{best.cpu * PACED_RATE / 1e6:.0%} of a core; {server.resident_megabytes():.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
