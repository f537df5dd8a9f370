"""Measure the linter and the audit: `python -m benchmarks.lint [MEASUREMENT] [OPTION …]`.

- `speed` (default, `make bench`): a cold start, and how much longer than a bare load it takes to
  read, evaluate and fix many documents
- `files`: many files and large Lists, in whole processes
- `audit`: the audit of a simulated cluster

MEASUREMENT --help lists the options. Nothing outside of temporary folders is written. The public
manifests are those of the tests (GPUWARD_CORPUS, or ../shared/corpus).
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.testkit.cluster_commands.paged_server import Listed, paged_server

ROOT = Path(__file__).parents[1]
DOCUMENTS = 2_000
ROUNDS = 5
TODAY = datetime.date(2030, 6, 15)


def _speed() -> int:
    """Print a cold start, and the time to read and evaluate documents against a bare load.

    The bare load is that of PyYAML's C loader. The documents are 2,000 generated ones, and the
    public manifests if the folder exists. The time to fix them is printed against evaluating them.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder, "one.yaml")
        one.write_text(document(random.Random(1), 0), encoding="utf-8")  # noqa: S311  # not for secrets
        many = Path(folder, "many.yaml")
        source = random.Random(2)  # noqa: S311
        many.write_text("---\n".join(document(source, n) for n in range(DOCUMENTS)), "utf-8")
        cold_start(one)
        throughput("generated file", [many])
    corpus = Path(os.environ.get("GPUWARD_CORPUS", ROOT.parent / "shared" / "corpus"))
    if corpus.is_dir():
        throughput("corpus", sorted(corpus.rglob("*.y*ml")))
    return 0


def cold_start(file: Path) -> None:
    """Print the time of a whole process for one small file, of Python alone, and with PyYAML."""
    commands = {
        "bare interpreter": [sys.executable, "-c", "pass"],
        "import yaml": [sys.executable, "-c", "import yaml"],
        "gpuward lint one.yaml": [sys.executable, "-m", "gpuward", "lint", str(file)],
    }
    # Use compiled modules, as an installation does, even if this process does not write them.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(file.parent / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for name, command in commands.items():
        run = partial(_run, command, environment)
        run()
        seconds = statistics.median(seconds_for(run) for _ in range(10))
        print(f"{name:<28}{seconds:8.3f} s")


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)


def throughput(name: str, files: list[Path]) -> None:
    """Print the CPU time to evaluate all `files`, against a bare load by PyYAML's C loader."""
    from lint.evaluation import FixTask  # noqa: PLC0415
    from lint.fix.fixer import Fixer  # noqa: PLC0415
    from lint.linter import Linter  # noqa: PLC0415
    from policies.loading import default_policy  # noqa: PLC0415
    from rules.profile.context import Context  # noqa: PLC0415
    from sources.paths import inputs  # noqa: PLC0415
    from sources.policy_file import OnePolicy  # noqa: PLC0415
    from sources.sources import reduce_garbage_collection  # noqa: PLC0415

    def load() -> None:
        for file in files:
            _load(file)

    policy = default_policy()
    linter = fixing = Linter(OnePolicy(policy), Context(TODAY))

    def evaluate() -> None:
        nonlocal linter
        linter = Linter(OnePolicy(policy), Context(TODAY))
        lint(linter)

    def fix() -> None:
        nonlocal fixing
        fixing = Linter(OnePolicy(policy), Context(TODAY), FixTask(fixer=Fixer(lambda _: True)))
        lint(fixing)

    def lint(linter: Linter) -> None:  # as `gpuward lint` does with these files
        given = [*inputs([str(file) for file in files])]
        if len(given) > 1:
            linter.gather_inventory(given)
        linter.evaluate(given)

    reduce_garbage_collection()
    # In turns, so that whatever else the machine does concerns all of them.
    rounds = [
        [seconds_for(work, time.process_time) for work in (load, evaluate, fix)]
        for _ in range(ROUNDS)
    ]
    plain, full, fixed = map(min, zip(*rounds, strict=True))
    objects = linter.results.objects
    print(
        f"{name:<16}{objects} objects, {linter.results.pods} pods, "
        f"{len(linter.results.findings)} findings: {full:.2f} s, {objects / full:,.0f} objects/s, "
        f"{full / plain:.2f} of a bare load ({plain:.2f} s)"
    )
    print(
        f"{'':<16}{len(fixing.results.fixed)} findings fixed: {fixed:.2f} s, "
        f"{fixed / full:.2f} of linting"
    )


def _load(file: Path) -> None:
    # PyYAML stops at text that it cannot read, such as a template.
    with suppress(yaml.YAMLError):
        for _ in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader):
            pass


def seconds_for(work: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that one call of `work` takes by `clock`."""
    start = clock()
    work()
    return clock() - start


def document(source: random.Random, number: int) -> str:
    """Return a realistic manifest: mostly workloads, a third with GPUs, and some Services."""
    kind = source.choices(
        ("Deployment", "Pod", "Job", "StatefulSet", "Service", "ConfigMap"), (8, 3, 3, 2, 3, 2)
    )[0]
    name = f"{source.choice(('api', 'train', 'serve', 'cache', 'etl'))}-{number}"
    head = f"metadata:\n  name: {name}\n  namespace: team-{number % 9}\n  labels: {{app: {name}}}\n"
    if kind == "Service":
        ports = "  ports:\n    - name: http\n      port: 80\n      targetPort: 8080\n"
        return f"apiVersion: v1\nkind: Service\n{head}spec:\n  selector: {{app: {name}}}\n{ports}"
    if kind == "ConfigMap":
        lines = "".join(f"    option-{n} = {source.random()}\n" for n in range(12))
        return f"apiVersion: v1\nkind: ConfigMap\n{head}data:\n  app.conf: |\n{lines}"
    spec = pod_spec(source, name)
    if kind == "Pod":
        return f"apiVersion: v1\nkind: Pod\n{head}spec:\n{spec}"
    group = "batch/v1" if kind == "Job" else "apps/v1"
    inner = "".join(f"    {line}\n" for line in spec.splitlines())
    labels = f"  template:\n    metadata:\n      labels: {{app: {name}}}\n    spec:\n"
    selector = (
        "" if kind == "Job" else f"  replicas: 2\n  selector:\n    matchLabels: {{app: {name}}}\n"
    )
    return f"apiVersion: {group}\nkind: {kind}\n{head}spec:\n{selector}{labels}{inner}"


def pod_spec(source: random.Random, name: str) -> str:
    """Return the YAML text of a pod spec, indented by two spaces."""
    gpu = source.random() < 1 / 3
    env = "".join(
        f"        - name: SETTING_{n}\n          value: value-{source.randrange(99)}\n"
        for n in range(source.randrange(2, 8))
    )
    limits = "            nvidia.com/gpu: 1\n" if gpu else ""
    toleration = (
        "  tolerations:\n    - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}\n"
        if gpu and source.random() < 1 / 2
        else ""
    )
    return (
        f"{toleration}  containers:\n    - name: {name.split('-', maxsplit=1)[0]}\n"
        f"      image: registry.example.com/{name}:1.{source.randrange(9)}\n"
        "      args: [--port, '8080', --log-level, info]\n"
        f"      env:\n{env}"
        "      ports:\n        - name: http\n          containerPort: 8080\n"
        "      readinessProbe:\n        httpGet: {path: /ready, port: http}\n"
        "        periodSeconds: 5\n"
        "      resources:\n        requests:\n            cpu: 500m\n            memory: 1Gi\n"
        f"        limits:\n            memory: 2Gi\n{limits}"
        "      volumeMounts:\n        - name: data\n          mountPath: /data\n"
        "  volumes:\n    - name: data\n      emptyDir: {}\n"
    )


FILES, LIST_PODS = 5_000, 2_000
_FOLDER = 500  # files in one folder


class Cost(NamedTuple):
    """The cost of a process and of those it started: seconds, and megabytes of the largest one."""

    wall: float
    cpu: float
    memory: float


def _files() -> int:
    """Print wall time, CPU time and memory of the largest process, each of whole processes.

    - Of many files, with one process and with one for each processor; and of a tenth of them, to
      see how memory grows. They are copies of the public manifests, else generated ones.
    - Of one List with many pods, as kubectl prints it, in JSON and in YAML; and of a tenth of it.
    """
    parser = argparse.ArgumentParser(description="Measure the linter on many files.")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--pods", type=int, default=LIST_PODS)
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


PODS, NODES = 150_000, 5_000
_PODS_OF_A_JOB = 10
_GPU_JOBS, _BYPASSES = 5, 100  # one Job of so many requests a GPU, one has a bypass
_NAMESPACES = 500

_Json = dict[str, Any]


def _audit() -> int:
    """Print the time and the memory of an audit of a simulated cluster.

    An API server in another process makes the objects of each page when it is asked for it. The
    audit waits meanwhile, so the whole takes as long as both together.
    """
    parser = argparse.ArgumentParser(description="Measure the audit of a simulated cluster.")
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--nodes", type=int, default=NODES)
    options = parser.parse_args()
    context = get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (there, folder, options.pods, options.nodes)
        server = context.Process(target=_serve, args=arguments, daemon=True)
        server.start()
        command = [sys.executable, "-m", "gpuward", "audit", "--isolated", "--output=statistics"]
        command += ["--notes", "--kubeconfig", here.recv()]
        started = time.perf_counter()
        subprocess.run(command, check=False)
        wall = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # not yet of the server
        here.send(None)
        server.join()
    both = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    other = both.ru_utime + both.ru_stime - cpu
    size = f"{options.nodes:,} nodes, {options.pods:,} pods"
    print(f"{size}: {cpu:.0f} s of CPU, {memory:.0f} MB")
    print(f"{wall:.0f} s in all, in which the simulated API server took {other:.0f} s of CPU")
    return 0


def _serve(pipe: Connection, folder: str, pods: int, nodes: int) -> None:
    listed = {
        "/api/v1/nodes": Listed(nodes, _node, "Node"),
        "/api/v1/namespaces": Listed(_NAMESPACES, _namespace, "Namespace"),
        "/apis/batch/v1/jobs": Listed(pods // _PODS_OF_A_JOB, _job, "Job"),
        "/api/v1/pods": Listed(pods, lambda number: _pod(number, nodes)),
    }
    with paged_server(listed) as served:
        pipe.send(served.kubeconfig(Path(folder)))
        pipe.recv()


def _namespace(number: int) -> _Json:
    return {"metadata": {"name": f"team-{number}"}}


def _node(number: int) -> _Json:
    capacity = {"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": "8"}
    return {"metadata": _metadata(f"node-{number}", ""), "status": {"capacity": capacity}}


def _job(number: int) -> _Json:
    metadata = _metadata(f"job-{number:06}", f"team-{number % _NAMESPACES}")
    return {"metadata": metadata, "spec": {"template": {"spec": _spec(number)}}}


def _pod(number: int, nodes: int) -> _Json:
    job = number // _PODS_OF_A_JOB
    metadata = _metadata(f"job-{job:06}-{number % _PODS_OF_A_JOB}", f"team-{job % _NAMESPACES}")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{job:06}", "controller": True}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {
        "metadata": metadata | {"uid": f"uid-{number}", "ownerReferences": [owner]},
        "spec": _spec(job) | {"nodeName": f"node-{number % nodes}"},
        "status": {"phase": "Running", "conditions": conditions},
    }


def _metadata(name: str, namespace: str) -> _Json:
    """With the fields that API servers write, which are half of a pod."""
    fields: _Json = {f"f:field-{number}": {".": {}, "f:name": {}} for number in range(80)}
    managed = {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": fields}}
    found: _Json = {"name": name, "labels": {"app": name}, "managedFields": [managed]}
    return found | ({"namespace": namespace} if namespace else {})


def _spec(job: int) -> _Json:
    variables = [{"name": f"SETTING_{n}", "value": f"value of {n}"} for n in range(20)]
    limits = {"cpu": "1", "memory": "1Gi"}
    if job % _GPU_JOBS == 0:
        limits["nvidia.com/gpu"] = "1"
    if job % _BYPASSES == 1:
        variables.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    resources = {"limits": limits, "requests": limits}
    container = {"name": "main", "image": "example/x:1", "env": variables, "resources": resources}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    mounts = [{"name": f"volume-{n}", "mountPath": f"/data/{n}"} for n in range(5)]
    volumes = [{"name": f"volume-{n}", "emptyDir": {}} for n in range(5)]
    containers = [container | {"volumeMounts": mounts}]
    return {"containers": containers, "volumes": volumes, "tolerations": tolerations}


_MEASUREMENTS = {"speed": _speed, "files": _files, "audit": _audit}


def main() -> int:
    """Run the measurement that the command line names; the exit status."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    name = sys.argv.pop(1) if sys.argv[1:2] and sys.argv[1] in _MEASUREMENTS else "speed"
    return _MEASUREMENTS[name]()


if __name__ == "__main__":
    sys.exit(main())
