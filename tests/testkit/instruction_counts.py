"""Counts the instructions of Python's bytecode that fixed workloads execute.

The number is the same on every machine, however busy it is, and grows with nearly every cost of
gpuward. What C code takes, such as regular expressions and parsers, is not counted.

`python -m tests.testkit.instruction_counts` prints the numbers, and with `--write` it keeps them
for the test.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from cluster.audit.cli import main as audit
from cluster.why.cli import main as why
from lint.cli import main as lint
from policies.loading import default_policy
from tests.testkit.cases import TODAY
from tests.testkit.cluster_commands.gpu_objects import node, pod
from webhook.admission.answer import answer
from webhook.admission.decider import Decider
from webhook.registration import ROUTES

FILE = Path(__file__).parents[1] / "data" / "instruction_counts.json"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_GPU = "nvidia.com/gpu"


def count_in_process() -> dict[str, int]:
    """The instructions of each workload, in a process of its own, with a fixed seed of hashes."""
    command = [sys.executable, "-m", "tests.testkit.instruction_counts"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, int] = json.loads(done.stdout)["counts"]
    return found


def count(work: Callable[[], object]) -> int:
    """The instructions that `work` executes."""
    executed = 0

    def in_frame(_frame: FrameType, event: str, _: Any) -> Any:
        nonlocal executed
        executed += event == "opcode"
        return in_frame

    def on_call(frame: FrameType, _event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return in_frame

    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(None)
    return executed


def _gpu_pod(number: int, containers: int) -> dict[str, Any]:
    """A pod that is to be fixed, another one for each number."""
    made = pod(f"train-{number}", serviceAccountName="trainer")
    made.pop("status", None)
    one = {
        "image": f"registry.example.com/team-{number}/train:{number}",
        "command": ["python", "train.py"],
        "env": [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            *({"name": f"SETTING_{n}", "value": f"value {n}"} for n in range(8)),
        ],
        "resources": {"requests": {_GPU: "1", "cpu": "8", "memory": "64Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    made["spec"]["containers"] = [{**one, "name": f"main-{n}"} for n in range(containers)]
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return made


def _ordinary_pod(number: int) -> dict[str, Any]:
    made = _gpu_pod(number, 1)
    (container,) = made["spec"]["containers"]
    container["env"] = container["env"][1:]
    container["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    return made


Work = Callable[[int], Callable[[], object]]
"""Makes the work with a number: nothing is remembered of one with another number."""


def _answering(path: str, make: Callable[[int], dict[str, Any]]) -> Work:
    """Answer the review of a pod that was not seen before: bytes in, bytes out."""
    decider = Decider(default_policy())

    def work(number: int) -> Callable[[], object]:
        about = {"group": "", "version": "v1"}
        request = {
            "uid": f"{number:036d}",
            "kind": {**about, "kind": "Pod"},
            "resource": {**about, "resource": "pods"},
            "namespace": "team",
            "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
            "object": make(number),
            "oldObject": None,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**review, "request": request}).encode()
        return lambda: answer(decider, ROUTES[path], body, TODAY)

    return work


def _running(main: Callable[[list[str]], int], *arguments: str) -> Work:
    """Run a command; the last of `arguments` is the name of a file, with `{}` for the number."""

    def run(number: int) -> None:
        *options, file = arguments
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main([*options, file.format(number)])

    return lambda number: lambda: run(number)


def _write_manifests(file: Path, number: int) -> None:
    """Write 20 documents of workloads, half of them with GPUs."""
    template = [{"spec": _gpu_pod(n, 1)["spec"]} for n in range(10 * number, 10 * number + 10)]
    template += [{"spec": _ordinary_pod(n)["spec"]} for n in range(10 * number, 10 * number + 10)]
    documents = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"app-{number}-{n}", "namespace": "team"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": each},
        }
        for n, each in enumerate(template)
    ]
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")


def _write_cluster(file: Path, number: int) -> None:
    """Write 20 nodes and 200 pods, of which ten wait."""
    nodes = [
        node(f"gpu-{number}-{n}", {_GPU: "8"}, labels={"nvidia.com/gpu.present": "true"})
        for n in range(20)
    ]
    pods = []
    for n in range(200):
        made = pod(f"p-{number}-{n}", {_GPU: "1"} if n % 2 else {"cpu": "1"})
        made["metadata"]["uid"] = f"{number}-{n}"
        made["spec"]["containers"][0]["image"] = f"registry.example.com/app-{n % 7}:1"
        if n < 10:
            made["status"] = {"phase": "Pending"}
            made["spec"]["containers"][0]["resources"]["limits"] = {_GPU: "16"}
        else:
            made["spec"]["nodeName"] = f"gpu-{number}-{n % 20}"
        pods.append(made)
    content = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}
    file.write_text(json.dumps(content), encoding="utf-8")


def _workloads(folder: Path) -> Mapping[str, Work]:
    for number in (1, 2):
        _write_manifests(folder / f"{number}.yaml", number)
        _write_cluster(folder / f"{number}.json", number)
    manifests, cluster = str(folder / "{}.yaml"), str(folder / "{}.json")
    return {
        "mutate a GPU pod": _answering("/mutate/deny", lambda n: _gpu_pod(n, 1)),
        "mutate a pod with eight containers": _answering("/mutate/deny", lambda n: _gpu_pod(n, 8)),
        "validate a pod without a GPU": _answering("/validate/deny", _ordinary_pod),
        "lint 20 workloads": _running(lint, "--isolated", "--jobs", "1", manifests),
        "audit 200 pods": _running(audit, "--isolated", "-f", cluster),
        "why ten pods wait": _running(why, "-f", cluster),
    }


def main() -> int:
    """Count, and print or write the numbers; the exit status."""
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in _workloads(Path(folder)).items():
            make(1)()  # what is read once for all, such as modules
            counts[name] = count(make(2))
    text = json.dumps({"python": VERSION, "counts": counts}, indent=2) + "\n"
    if "--write" in sys.argv:
        FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
