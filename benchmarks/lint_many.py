"""Measure the linter on many files and on large ones: `python -m benchmarks.lint_many`.

It prints wall time, CPU time and the memory of the largest process, each of whole processes:

- of many files, with one process and with as many as there are processors; and of a tenth of them,
  to see how memory grows. The files are copies of the public manifests of the tests
  (GPUWARD_CORPUS, or ../shared/corpus), else generated ones.
- of one List with many pods, as kubectl prints it, in JSON and in YAML; and of a tenth of it.

`--files 35000 --pods 10000`, for example, choose how many. Nothing outside of a temporary folder is
written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks.lint import ROOT, document

FILES, PODS = 5_000, 2_000
_FOLDER = 500  # files in one folder


class Cost(NamedTuple):
    """What a process and those that it started took: seconds, and megabytes of the largest one."""

    wall: float
    cpu: float
    memory: float


def main() -> int:
    """Run the measurements, print them, and return 0."""
    parser = argparse.ArgumentParser(description="Measure the linter on many files.")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--pods", type=int, default=PODS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _many_files(Path(folder), options.files)
        _large_lists(Path(folder), options.pods)
    return 0


def _many_files(folder: Path, count: int) -> None:
    few, all_ = folder / "few", folder / "all"
    _write_files(few, count // 10)
    _write_files(all_, count)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    tenth = _lint("--jobs", "1", str(few))
    one = _lint("--jobs", "1", str(all_))
    several = _lint("--jobs", str(processors), str(all_))
    _print(f"{count // 10:,} files, 1 process", tenth)
    _print(f"{count:,} files, 1 process", one)
    _print(f"{count:,} files, {processors} processes", several)
    print(
        f"{'':<32}{several.wall / one.wall:.2f} of the time of one process; memory "
        f"{one.memory / tenth.memory:.2f} times that of a tenth of the files"
    )


def _write_files(folder: Path, count: int) -> None:
    corpus = Path(os.environ.get("GPUWARD_CORPUS", ROOT.parent / "shared" / "corpus"))
    texts = [file.read_bytes() for file in sorted(corpus.rglob("*.y*ml"))]
    source = random.Random(3)  # noqa: S311  # not for secrets
    texts = texts or [document(source, number).encode() for number in range(500)]
    for number, text in zip(range(count), itertools.cycle(texts), strict=False):
        file = folder / str(number // _FOLDER) / f"{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)


def _large_lists(folder: Path, count: int) -> None:
    for ending in ("json", "yaml"):
        costs = []
        for pods in (count // 10, count):
            file = folder / f"pods.{ending}"
            _write_list(file, pods)
            costs.append(_lint("--jobs", "1", str(file)))
            size = file.stat().st_size / 1e6
            _print(f"{pods:,} pods, {ending}, {size:.0f} MB", costs[-1])
        growth = costs[1].memory / costs[0].memory
        print(f"{'':<32}memory {growth:.2f} times that of a tenth of the pods")


def _write_list(file: Path, count: int) -> None:
    source = random.Random(4)  # noqa: S311
    pods: list[dict[str, object]] = []
    numbers = itertools.count()
    while len(pods) < count:
        pod = yaml.load(document(source, next(numbers)), yaml.CSafeLoader)  # it is safe
        if pod["kind"] == "Pod":
            pods.append(pod)
    content = {"apiVersion": "v1", "items": pods, "kind": "List", "metadata": {}}
    with file.open("w", encoding="utf-8") as stream:
        if file.suffix == ".json":
            json.dump(content, stream, indent=4)
        else:
            yaml.dump(content, stream, Dumper=yaml.CSafeDumper)


def _lint(*arguments: str) -> Cost:
    command = [sys.executable, "-m", "gpuward", "lint", "--statistics", *arguments]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    memory = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Cost(wall, usage.ru_utime + usage.ru_stime, memory)


def _print(what: str, cost: Cost) -> None:
    print(f"{what:<32}{cost.wall:7.1f} s{cost.cpu:8.1f} s CPU{cost.memory:7.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
