"""`gpus`, `why`, `doctor` and `audit` of a large cluster: `make bench-commands`.

Each reads the cluster of `benchmarks.console`, with what `docs/example-cluster.yaml` has besides,
from a file as `kubectl get -o json` writes it, and from a simulated API server. What counts is the
CPU time of the command, with modules that are compiled as pip does it; the server has a process of
its own. Nothing outside of a temporary folder is written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml

from benchmarks.console import nodes, pods
from cluster.source import objects
from cluster.source.objects import Object, Resource
from tests.testkit.cluster_commands.paged_server import Listed, paged_server

ROOT = Path(__file__).parents[1]
COMMANDS = (("gpus",), ("why",), ("doctor",), ("audit", "--isolated"))
RESOURCES = [each for each in vars(objects).values() if isinstance(each, Resource)]
# Status 1 says that something was found, 3 that something is not known.
_STATUSES = (0, 1, 3)


def cluster() -> Iterator[Object]:
    """The objects of the cluster, those of a resource in the order of their names."""
    text = (ROOT / "docs" / "example-cluster.yaml").read_text(encoding="utf-8")
    example: Any = yaml.safe_load(text)
    yield from sorted((*example["items"], *nodes(), *pods()), key=_place)


def _place(raw: Object) -> tuple[str, str]:
    metadata = raw["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _serve(pipe: Connection, folder: str) -> None:
    """Write the cluster into a file, and serve it; sends the names of the file and a kubeconfig."""
    everything = [*cluster()]
    file = Path(folder, "cluster.json")
    content = {"apiVersion": "v1", "kind": "List", "items": everything}
    file.write_text(json.dumps(content, indent=4), encoding="utf-8")
    by_kind: dict[str, list[Object]] = defaultdict(list)
    for raw in everything:
        by_kind[raw["kind"]].append(raw)
    listed = {}
    for resource in RESOURCES:
        found, version = by_kind[resource.kind], resource.versions[0]
        group = f"apis/{resource.group}/{version}" if resource.group else f"api/{version}"
        path = f"/{group}/{resource.name}"
        listed[path] = Listed(len(found), found.__getitem__, resource.kind, resource.is_namespaced)
    with paged_server(listed) as served:
        pipe.send((str(file), served.kubeconfig(Path(folder))))
        pipe.recv()


def _measure(command: tuple[str, ...], folder: str, *source: str) -> tuple[float, float]:
    """Run a command; its seconds of CPU, and the most memory that it had, in MiB.

    Compiled modules are kept in `folder`.
    """
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(folder, "modules"))}
    arguments = [sys.executable, "-m", "gpuward", *command, *source]
    output = subprocess.DEVNULL
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=output, stderr=output, env={**os.environ, **compiled}
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in _STATUSES:
        raise SystemExit(f"{' '.join(arguments)}: status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description="Measure commands that read a large cluster.")
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts; default: 3")
    rounds = parser.parse_args().rounds
    context = get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        server = context.Process(target=_serve, args=(there, folder), daemon=True)
        server.start()
        # A process that is started has the peak of the one that starts it: this one stays small.
        file, kubeconfig = here.recv()
        sources = {"API server": ("--kubeconfig", kubeconfig), "file": ("-f", file)}
        for command in COMMANDS:
            for name, source in sources.items():
                measured = [_measure(command, folder, *source) for _ in range(rounds)]
                seconds, memory = min(measured)[0], max(each for _, each in measured)
                print(f"{command[0]:8}{name:12}{seconds:6.1f} s CPU{memory:6.0f} MiB")
        here.send(None)
        server.join()


if __name__ == "__main__":
    main()
