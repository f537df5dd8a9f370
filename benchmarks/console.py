"""The console with 5,000 nodes and 20,000 pods: `make bench-console`.

Measures the first paint in a browser, the size of the page, an update, and the memory of a process
that has nothing but the console. Wants Chromium, and two cores to itself for a minute.
"""

from __future__ import annotations

import gzip
import multiprocessing
import random
import statistics
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from cluster.source.objects import NODES, PODS, Object
from cluster.source.store import ObjectStore
from console.state import ClusterState
from policies.loading import default_policy
from tests.testkit.browser import browser
from tests.testkit.console.server import serve

_NODES, _PODS = 5_000, 20_000
_MODELS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "Tesla-T4")
_TIMES = 15
_MIB = 1 << 20
_FIRST_PAINT = """() => new Promise((found) => {
  const paints = (list) => list.getEntriesByName("first-contentful-paint");
  new PerformanceObserver((list) => paints(list).forEach((one) => found(one.startTime)))
    .observe({ type: "paint", buffered: true });
})"""


def nodes() -> Iterator[Object]:
    """Nodes with eight GPUs each, of four models."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": "True"}]
    for number in range(_NODES):
        labels = {"nvidia.com/gpu.product": _MODELS[number % len(_MODELS)]}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"gpu-{number:04}", "labels": labels},
            "spec": {},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
        }


def pods() -> Iterator[Object]:
    """Pods of 60 namespaces with one to four GPUs each, of which every hundredth waits."""
    chance = random.Random(1)  # noqa: S311  # no secret
    for number in range(_PODS):
        yield pod(number, chance.choice((1, 1, 2, 2, 4)), waits=number % 100 == 0)


def pod(number: int, gpus: int, *, waits: bool) -> Object:
    """One of the pods."""
    limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": str(gpus)}
    env = [{"name": f"VARIABLE_{n}", "value": "x" * 20} for n in range(8)]
    main = {"name": "main", "image": "registry.example.com/train:1", "env": env}
    spec: dict[str, Any] = {"containers": [{**main, "resources": {"limits": limits}}]}
    if not waits:
        spec["nodeName"] = f"gpu-{number % _NODES:04}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{number // 4}"}
    metadata = {
        "name": f"train-{number}",
        "namespace": f"team-{number % 60}",
        "uid": str(number),
        "ownerReferences": [{**owner, "controller": True}],
    }
    status = {"phase": "Pending" if waits else "Running"}
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return {**raw, "status": status}


def _run_console(pipe: Connection) -> None:
    """A process with the console: sends its address, and changes a pod whenever it is told to."""
    state = ClusterState("benchmark", ObjectStore(), default_policy())
    started = time.process_time()
    for raw in nodes():
        state.put(NODES, raw)
    for raw in pods():
        state.put(PODS, raw)
    for resource in (NODES, PODS):
        state.listed(resource)
    state.usage()
    seconds = time.process_time() - started
    with serve(state) as address:
        pipe.send((address, seconds))
        while (command := pipe.recv()) != "stop":
            if command == "time":
                pipe.send(time.process_time())
                continue
            waiting = pod(0, 1, waits=True)
            waiting["spec"]["nodeName"] = f"gpu-{random.randrange(_NODES):04}"  # noqa: S311
            started = time.process_time()
            state.put(PODS, waiting)
            state.usage()
            pipe.send(time.process_time() - started)
        pipe.send(_peak_memory())


def _peak_memory() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def _fetched(address: str) -> tuple[bytes, float]:
    started = time.perf_counter()
    with urllib.request.urlopen(address) as answer:  # noqa: S310  # of the console
        return answer.read(), time.perf_counter() - started


def _first_paints(address: str) -> list[float]:
    found = []
    with browser() as running:
        for _ in range(_TIMES):
            with running.new_page(viewport={"width": 1360, "height": 900}) as page:
                page.goto(address)
                found.append(page.evaluate(_FIRST_PAINT) / 1000)
    return found


def main() -> None:
    """Measure, and print what was measured."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run_console, args=(there,), daemon=True)
    process.start()
    address, seconds = here.recv()
    print(f"{_NODES:,} nodes and {_PODS:,} pods counted in {seconds:.1f} s of one processor")
    group = f"{address}/?model={_MODELS[0]}"
    for what, path in (("the page", f"{address}/"), ("a group of 1,250 nodes", group)):
        body, _ = _fetched(path)
        here.send("time")
        before = here.recv()
        answers = [_fetched(path)[1] for _ in range(_TIMES)]
        here.send("time")
        used = (here.recv() - before) / _TIMES
        size = len(gzip.compress(body, 6)) / 1024
        print(f"{what}: {size:.0f} KiB with gzip, {used * 1000:.0f} ms of one processor, answered")
        print(f"  after {_text(answers)}, painted after {_text(_first_paints(path))}")
    updates = []
    for _ in range(_TIMES):
        here.send("change")
        updates.append(here.recv())
    print(f"an update takes {_text(updates)} of one processor")
    here.send("stop")
    print(f"memory of the process: at most {here.recv() / _MIB:.0f} MiB")
    process.join()


def _text(seconds: list[float]) -> str:
    median, most = statistics.median(seconds), max(seconds)
    return f"{median * 1000:.0f} ms (median; at most {most * 1000:.0f} ms)"


if __name__ == "__main__":
    main()
