"""Measure the speed of the linter, with ratios from one run: `make bench`.

It prints the cold start of `gpuward lint one.yaml`; the time to read and evaluate a generated file
of 2,000 realistic documents, against a bare load by PyYAML's C loader, and the time to fix it,
against evaluating it; and, if the folder exists, the same for a folder of public manifests
(GPUWARD_CORPUS, or ../shared/corpus). No file is written.
"""

from __future__ import annotations

import datetime
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
DOCUMENTS = 2_000
ROUNDS = 5
TODAY = datetime.date(2030, 6, 15)


def main() -> int:
    """Run the measurements, print them, and return 0."""
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
    from lint.fix.fixer import Fixer  # noqa: PLC0415
    from lint.linter import (  # noqa: PLC0415
        Linter,
        reduce_garbage_collection,
    )
    from policies.loading import default_policy  # noqa: PLC0415
    from rules.profile.context import Context  # noqa: PLC0415
    from sources.paths import inputs  # noqa: PLC0415

    def load() -> None:
        for file in files:
            _load(file)

    policy = default_policy()
    linter = fixing = Linter(policy, Context(TODAY))

    def evaluate() -> None:
        nonlocal linter
        linter = Linter(policy, Context(TODAY))
        lint(linter)

    def fix() -> None:
        nonlocal fixing
        fixing = Linter(policy, Context(TODAY), fixer=Fixer(lambda _: True))
        lint(fixing)

    def lint(linter: Linter) -> None:  # as `gpuward lint` does with these files
        given = [*inputs([str(file) for file in files])]
        if len(given) > 1:
            linter.gather(given)
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


if __name__ == "__main__":
    sys.exit(main())
