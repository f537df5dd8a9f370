"""How fast the rule engine is at admission, in microseconds and against `json.loads`.

Prints for pods as API servers send them what `fix` costs, and `check` of what it returns;
then what the largest pods cost that a tenant can send. The best of several short runs by
the clock of this process, garbage frozen as the server does it.
"""

from __future__ import annotations

import datetime
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.reviews import GPU, gpu_pod, review, unrelated_pod
from policies.loading import default_policy
from rules.engine.fixing import check, fix
from rules.profile.context import Context

RULES = default_policy().rule_set()
CONTEXT = Context(
    datetime.date(2030, 6, 15),
    namespace="team-vision",
    user="system:serviceaccount:kube-system:replicaset-controller",
    operation="CREATE",
)
ROUNDS, SECONDS = 15, 0.02


class Costs(NamedTuple):
    """Seconds for one review, and what came of it."""

    load: float
    fix: float
    check: float
    size: int
    operations: int
    remaining: int


def main() -> int:
    """Run the measurements and print them; 0."""
    gc.collect()
    gc.freeze()
    print(f"{'':<34}{'KB':>6}{'loads':>9}{'fix':>16}{'check of it':>16}  (µs, ratio)")
    ordinary = {
        "one container": gpu_pod(),
        "eight containers, ten fixes": mended_by_half(gpu_pod(8, 16)),
        "eight containers": gpu_pod(8, 16),
        "unrelated": unrelated_pod(),
    }
    for name, pod in ordinary.items():
        show(name, measured(pod, ROUNDS))
    for name, pod in hostile().items():
        show(name, measured(pod, rounds=1))
    return 0


def mended_by_half(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with half of its containers in order."""
    containers = pod["spec"]["containers"]
    for container in containers[len(containers) // 2 :]:
        container["env"].pop()
        container["resources"]["limits"][GPU] = container["resources"]["requests"][GPU]
    return pod


def hostile() -> dict[str, dict[str, Any]]:
    """Pods of about three megabytes, which is the most that an API server takes."""
    small = {"name": "c", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    many = gpu_pod()
    many["spec"]["containers"] = [{**small, "name": f"c{n}"} for n in range(20_000)]
    return {
        "100 containers of 1,000 variables": gpu_pod(100, 1_000),
        "20,000 containers": many,
        "100,000 variables": gpu_pod(1, 100_000),
    }


def measured(pod: dict[str, Any], rounds: int) -> Costs:
    """What the pod costs."""
    text = json.dumps(review(pod))
    pod = json.loads(text)["request"]["object"]
    fixed = fix(pod, RULES, CONTEXT)
    return Costs(
        timed(lambda: json.loads(text), rounds),
        timed(lambda: fix(pod, RULES, CONTEXT), rounds),
        timed(lambda: check(fixed.manifest, RULES, CONTEXT), rounds),
        len(text),
        len(fixed.operations),
        len(fixed.remaining.findings),
    )


def timed(work: Callable[[], object], rounds: int) -> float:
    """Seconds that `work` takes: the best of `rounds` short runs."""
    best = float("inf")
    for _ in range(rounds):
        number = 0
        started = now = time.process_time()
        while now - started < SECONDS:
            work()
            number += 1
            now = time.process_time()
        best = min(best, (now - started) / number)
    return best


def show(name: str, costs: Costs) -> None:
    """One line about one pod."""
    figures = "".join(f"{s * 1e6:9,.0f} {s / costs.load:5.2f}x" for s in (costs.fix, costs.check))
    counts = f"{costs.operations} operations, {costs.remaining} findings remain"
    print(f"{name:<34}{costs.size / 1000:6,.0f}{costs.load * 1e6:9,.0f}{figures}  {counts}")


if __name__ == "__main__":
    sys.exit(main())
