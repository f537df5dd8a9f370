"""Measure the throughput and latency of the admission server over TLS, against a baseline.

The baseline is an aiohttp handler that decodes the review and answers with a constant patch of the
same size. The client runs in another process on another core and sends load to both servers in
turn, in short runs. The reviews are of replicas, of replicas and new templates in several mixes,
and all the same (`benchmarks.admission.load`).

Servers that are the same differ from one start to the next. So both are started several times, and
each figure is the median over the starts. Figures are shares of what the baseline reaches. On a
machine that other programs use too, only the share by CPU time is reliable.

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
from statistics import median
from typing import Any, NamedTuple

import jsonpatch

from benchmarks.admission.load import ALL_NEW, MIXES, NEW_IN_TEN, REPLICAS, Client, Load
from benchmarks.admission.reviews import encoded, gpu_pod, large_gpu_pod, unrelated_pod
from benchmarks.admission.servers import (
    ServerProcess,
    Variant,
    baseline_server,
    create_certificate,
    gpuward_server,
)


class Run(NamedTuple):
    """One short run against one server."""

    load: Load
    cpu: float  # microseconds of CPU time for each request


Results = dict[tuple[str, str], list[tuple[Run, Run]]]
"""The runs against gpuward and the baseline of each case and mix, one pair for each start."""


def print_table(title: str, results: Results) -> None:
    """Print one line for each case and mix."""
    print(f"\n{title}")
    print("`base` is the baseline: a handler that answers with a constant patch.")
    print(f"{'':<44}{'requests/s':>11}{'base':>8}{'share':>7}{'by CPU':>8}{'(starts)':>12}", end="")
    print(f"{'p50 ms':>8}{'base':>7}{'p99 ms':>8}{'base':>7}  CPU µs")
    for (case, mix), pairs in results.items():
        ours, bases = zip(*pairs, strict=True)
        shares = sorted(base.cpu / own.cpu for own, base in pairs)
        by_rate = median(own.load.rate / base.load.rate for own, base in pairs)
        print(
            f"{case:<24}{mix:<20}{_median(ours, 'rate'):>11,.0f}{_median(bases, 'rate'):>8,.0f}"
            f"{by_rate:>7.0%}{median(shares):>8.0%}{f'({shares[0]:.0%}-{shares[-1]:.0%})':>12}"
            f"{_median(ours, 'p50'):>8.2f}{_median(bases, 'p50'):>7.2f}"
            f"{_median(ours, 'p99'):>8.2f}{_median(bases, 'p99'):>7.2f}"
            f"{median(run.cpu for run in ours):>8.0f}"
        )


def _median(runs: Iterable[Run], figure: str) -> float:
    return float(median(getattr(run.load, figure) for run in runs))


PACED_CASE, PACED_RATE, PACED_CONNECTIONS = "30 KB, mutate", 500, 20
PACED_MIXES = (REPLICAS, NEW_IN_TEN, ALL_NEW)
_MIXES = {mix.name: mix for mix in MIXES}
NAMES: dict[Variant, str] = {
    "quick": "msgspec, orjson and uvloop",
    "plain": "json and asyncio",
}


class Case(NamedTuple):
    """A review, its path, and the baseline's path for a response of the same size.

    `patch` is the patch in the server's response, in base64; empty if there is none.
    """

    name: str
    path: str
    baseline: str
    body: bytes
    patch: str


def main() -> int:
    """Run the measurements, print them, and return 0."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:  # noqa: PLR2004
        sys.exit("the server and the client need one CPU each")
    for variant in options.variants:
        results: Results = {}
        memory = 0.0
        for start in range(options.starts):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                certificate = create_certificate(folder)
                client = Client(folder, {cores[1]})
                with gpuward_server(folder, cores[0], variant, certificate) as server:
                    cases = list(_cases(server))
                    patches = {case.baseline: case.patch for case in cases}
                    base = baseline_server(folder, cores[0], variant, certificate, patches)
                    with base as baseline:
                        _measure(client, server, baseline, cases, options, results)
                        if start == options.starts - 1:
                            memory = _memory(client, server, cases[0], options)
        title = f"{NAMES[variant]}, {options.connections} connections, {options.starts} starts"
        print_table(title, results)
        print(f"memory at most, with {options.templates:,} templates: {memory:.0f} MB", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=[*NAMES])
    parser.add_argument("--mixes", nargs="+", choices=[*_MIXES], default=[*_MIXES])
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--starts", type=int, default=5, help="how often the servers are started")
    parser.add_argument("--seconds", type=int, default=1, help="length of one short run")
    parser.add_argument(
        "--paced-seconds", type=int, default=4, help="length of one run at a steady rate"
    )
    parser.add_argument(
        "--templates", type=int, default=100_000, help="how many are sent for the memory"
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
    results: Results,
) -> None:
    """Add one pair of runs for each case and mix to `results`."""
    for case in cases:
        sides = ((server, case.path), (baseline, case.baseline))
        for name in options.mixes:
            load = partial(
                client.closed,
                body=case.body,
                connections=options.connections,
                seconds=options.seconds,
                mix=_MIXES[name],
            )
            pair = (_run(*sides[0], load), _run(*sides[1], load))
            results.setdefault((case.name, name), []).append(pair)
        if case.name == PACED_CASE:
            for mix in PACED_MIXES:
                load = partial(
                    client.paced,
                    body=case.body,
                    rate=PACED_RATE,
                    connections=PACED_CONNECTIONS,
                    seconds=options.paced_seconds,
                    mix=mix,
                )
                pair = (_run(*sides[0], load), _run(*sides[1], load))
                name = f"{mix.name}, {PACED_RATE}/s"
                results.setdefault((case.name, name), []).append(pair)


def _run(server: ServerProcess, path: str, send: Callable[[str], Load]) -> Run:
    before = server.cpu_seconds()
    load = send(f"https://{server.address}{path}")
    cpu_seconds = server.cpu_seconds() - before
    server.forget_log()
    return Run(load, cpu_seconds / max(load.requests, 1) * 1e6)


def _memory(
    client: Client, server: ServerProcess, case: Case, options: argparse.Namespace
) -> float:
    """Return the highest memory of the server, in MB, after it has seen so many templates."""
    seen = 0
    while seen < options.templates:
        url = f"https://{server.address}{case.path}"
        seen += client.closed(url, case.body, options.connections, 4, ALL_NEW).requests
        server.forget_log()
    return server.resident_megabytes()
