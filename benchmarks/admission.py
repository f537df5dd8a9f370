"""How fast the admission server is, over TLS, from another process on another core.

Beside it runs the baseline, an aiohttp handler that decodes the review and answers with a
constant patch of the same size, and all figures are shares of what that reaches. Both are
asked in turns, in several short runs, of which the best counts. Needs two processors and wrk.

The share by processor time is what remains meaningful on a machine that others use as well.
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
from benchmarks.served import Served, Variant, baseline, certificate_in, own

PACED_RATE, PACED_CONNECTIONS = 500, 20
NAMES: dict[Variant, str] = {"quick": "orjson and uvloop", "plain": "json and asyncio"}


class Case(NamedTuple):
    """A review and its path; `baseline` is the baseline's path for a response of the same size."""

    name: str
    path: str
    baseline: str
    body: bytes
    patch: str


class Run(NamedTuple):
    """One short run against one server."""

    load: Load
    cpu: float  # microseconds for each request


def main() -> int:
    """Run the measurements and print them; 0."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:  # noqa: PLR2004
        sys.exit("the server and its load need a processor each")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate = certificate_in(folder)
        client = Client(folder, {cores[1]})
        for variant in options.variants:
            with own(folder, cores[0], variant, certificate) as ours:
                cases = list(_cases(ours))
                patches = {case.baseline: case.patch for case in cases}
                with baseline(folder, cores[0], variant, certificate, patches) as other:
                    print(f"\n{NAMES[variant]}")
                    _measure(client, ours, other, cases, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=[*NAMES])
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5, help="short runs a figure")
    parser.add_argument("--seconds", type=int, default=1, help="how long one takes")
    parser.add_argument("--paced-seconds", type=int, default=4, help="at a steady rate")
    return parser.parse_args()


def _cases(ours: Served) -> Iterator[Case]:
    pods = {"4 KB": gpu_pod(), "30 KB": large_gpu_pod(), "unrelated": unrelated_pod()}
    for name, pod in pods.items():
        body = encoded(pod)
        patch = ours.ask("/mutate/deny", body).get("patch", "")
        yield Case(f"{name}, mutate", "/mutate/deny", f"/{len(patch)}", body, patch)
        repaired = _repaired(pod, patch)
        if not ours.ask("/validate/deny", repaired)["allowed"]:
            sys.exit(f"{name}: what was fixed is refused all the same")
        yield Case(f"{name}, validate", "/validate/deny", "/0", repaired, "")
        if patch:
            yield Case(f"{name} unfixed, validate", "/validate/deny", "/0", body, "")


def _repaired(pod: dict[str, Any], patch: str) -> bytes:
    """The review of what an API server makes of the pod with that answer."""
    operations = json.loads(base64.b64decode(patch) or "[]")
    repaired: dict[str, Any] = jsonpatch.apply_patch(pod, operations)
    return encoded(repaired)


def _measure(
    client: Client, ours: Served, other: Served, cases: list[Case], options: argparse.Namespace
) -> None:
    print("`base` is the baseline: a handler that answers with a constant patch.")
    head = f"{'':<24}{'connections':>11}{'requests/s':>12}{'base':>8}{'share':>7}{'(runs)':>12}"
    print(f"{head}{'by CPU':>8}{'p50 ms':>8}{'base':>7}{'p99 ms':>8}{'base':>7}  CPU µs, base")
    for case in cases:
        for connections in options.connections:
            send = partial(
                client.closed, body=case.body, connections=connections, seconds=options.seconds
            )
            _show(case.name, connections, _in_turns(ours, other, case, send, options.rounds))
    print(f"{PACED_RATE} requests/s of 30 KB, mutate, at a steady pace, and memory in all runs:")
    large = next(case for case in cases if case.name == "30 KB, mutate")
    send = partial(
        client.paced,
        body=large.body,
        rate=PACED_RATE,
        connections=PACED_CONNECTIONS,
        seconds=options.paced_seconds,
    )
    turns = _in_turns(ours, other, large, send, options.rounds)
    for server, runs in zip((ours, other), zip(*turns, strict=True), strict=True):
        _show_paced(server, runs)


def _in_turns(
    ours: Served, other: Served, case: Case, send: Callable[[str], Load], rounds: int
) -> list[tuple[Run, Run]]:
    sides = ((ours, case.path), (other, case.baseline))
    return [(_run(*sides[0], send), _run(*sides[1], send)) for _ in range(rounds)]


def _run(server: Served, path: str, send: Callable[[str], Load]) -> Run:
    before = server.cpu_seconds()
    load = send(f"https://{server.address}{path}")
    spent = server.cpu_seconds() - before
    server.forget_log()
    return Run(load, spent / max(load.requests, 1) * 1e6)


def _show(name: str, connections: int, pairs: list[tuple[Run, Run]]) -> None:
    """One line: the best of either side, and how far the runs lie apart."""
    ours, other = (max((pair[n].load for pair in pairs), key=lambda x: x.rate) for n in (0, 1))
    shares = sorted(pair[0].load.rate / max(pair[1].load.rate, 1) for pair in pairs)
    cpu = [min(pair[n].cpu for pair in pairs) for n in (0, 1)]
    print(
        f"{name:<24}{connections:>11}{ours.rate:>12,.0f}{other.rate:>8,.0f}"
        f"{ours.rate / other.rate:>7.0%}{f'({shares[0]:.0%}-{shares[-1]:.0%})':>12}"
        f"{cpu[1] / cpu[0]:>8.0%}{ours.p50:>8.2f}{other.p50:>7.2f}{ours.p99:>8.2f}{other.p99:>7.2f}"
        f"{cpu[0]:>8.0f}{cpu[1]:>7.0f}",
        flush=True,
    )


def _show_paced(server: Served, runs: Iterable[Run]) -> None:
    best = min(runs, key=lambda run: run.load.p99)
    print(
        f"  {server.name:<8} p50 {best.load.p50:.2f} ms, p99 {best.load.p99:.2f} ms, "
        f"{best.cpu * PACED_RATE / 1e6:.0%} of a core; {server.resident_megabytes():.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
