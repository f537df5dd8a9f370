"""Measure the time of the rule engine at admission, in microseconds and against `json.loads`.

For pods as API servers send them, it prints the time of `fix`, and the time of `check` for the
fixed pod; then the same for pods near the bounds of an evaluation, and the time of the one rule
that is about every pod. It takes the best of several short runs in CPU time. As in the server,
`gc.freeze` exempts all earlier objects from collection.
"""

from __future__ import annotations

import datetime
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.admission.reviews import GPU, gpu_pod, review, unrelated_pod
from policies.loading import default_policy, load_policy
from rules.engine.bounds import MAX_STEPS, StepLimit
from rules.engine.evaluation import check_subject
from rules.engine.fixing import check, fix
from rules.objects.pod import Pod, set_circumstances
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects

RULES = default_policy().rule_set()
CONTEXT = Context(
    datetime.date(2030, 6, 15),
    namespace="team-vision",
    user="system:serviceaccount:kube-system:replicaset-controller",
    operation="CREATE",
)
ROUNDS, SECONDS = 15, 0.02
ABOUT_EVERY_POD = "gpu-node-without-request"
POLICY = f"""\
apiVersion: gpuward.io/v1
kind: Policy
profiles: [nvidia]
rules: {{{ABOUT_EVERY_POD}: {{action: deny}}}}
"""


class Costs(NamedTuple):
    """The times in seconds for one review, its size in bytes, and the results of `fix`.

    `remaining` is the number of findings that `fix` leaves.
    """

    load: float
    fix: float
    check: float
    size: int
    operations: int
    remaining: int


def main() -> int:
    """Run the measurements, print them, and return 0."""
    gc.collect()
    gc.freeze()
    print(f"{'':<34}{'KB':>6}{'loads':>9}{'fix':>16}{'check of it':>16}  (µs, ratio)")
    ordinary = {
        "one container": gpu_pod(),
        "eight containers, ten fixes": half_fixed(gpu_pod(8, 16)),
        "eight containers": gpu_pod(8, 16),
        "unrelated": unrelated_pod(),
    }
    for name, pod in ordinary.items():
        show(name, measure(pod, ROUNDS))
    for name, pod in largest_pods().items():
        show(name, measure(pod, rounds=1))
    print(f"\n{ABOUT_EVERY_POD} alone, if it is on")
    for name, pod in {"one container": gpu_pod(), "unrelated": unrelated_pod()}.items():
        print(f"{name:<34}{seconds_of_rule(pod) * 1e6:6,.1f} µs")
    return 0


def half_fixed(pod: dict[str, Any]) -> dict[str, Any]:
    """Fix the second half of the pod's containers, and return the pod."""
    containers = pod["spec"]["containers"]
    for container in containers[len(containers) // 2 :]:
        container["env"].pop()
        container["resources"]["limits"][GPU] = container["resources"]["requests"][GPU]
    return pod


def largest_pods() -> dict[str, dict[str, Any]]:
    """Return large pods within the bounds of an evaluation."""
    return {
        "100 containers of 500 variables": gpu_pod(100, 500),
        "30,000 variables": gpu_pod(1, 30_000),
    }


def measure(pod: dict[str, Any], rounds: int) -> Costs:
    """Measure one pod; `rounds` is the number of short runs."""
    text = json.dumps(review(pod))
    pod = json.loads(text)["request"]["object"]
    result = fix(pod, RULES, CONTEXT)
    return Costs(
        seconds_for(lambda: json.loads(text), rounds),
        seconds_for(lambda: fix(pod, RULES, CONTEXT), rounds),
        seconds_for(lambda: check(result.manifest, RULES, CONTEXT), rounds),
        len(text),
        len(result.operations),
        len(result.remaining.findings),
    )


def seconds_for(work: Callable[[], object], rounds: int) -> float:
    """Return the CPU seconds that one call of `work` takes: the best of `rounds` short runs."""
    best = float("inf")
    for _ in range(rounds):
        number = 0
        start = now = time.process_time()
        while now - start < SECONDS:
            work()
            number += 1
            now = time.process_time()
        best = min(best, (now - start) / number)
    return best


def seconds_of_rule(pod: dict[str, Any]) -> float:
    """Return the CPU seconds that the rule about every pod takes, beside others, for one pod.

    Others have looked at the requests of the pod already.
    """
    policy = load_policy(POLICY, "a benchmark").rule_set()
    (active,) = policy.restricted_to([ABOUT_EVERY_POD]).rules
    context = CONTEXT.with_profile(policy.profile)
    (subject,) = find_subjects(pod, policy.profile, CONTEXT.namespace)
    if not isinstance(subject, Pod):
        raise TypeError("it is no pod")
    set_circumstances(subject, context)

    def run() -> object:
        return check_subject(active, subject, context, StepLimit(MAX_STEPS), 0)

    return seconds_for(run, ROUNDS)


def show(name: str, costs: Costs) -> None:
    """Print one line about one pod."""
    figures = "".join(f"{s * 1e6:9,.0f} {s / costs.load:5.2f}x" for s in (costs.fix, costs.check))
    counts = f"{costs.operations} operations, {costs.remaining} findings remain"
    print(f"{name:<34}{costs.size / 1000:6,.0f}{costs.load * 1e6:9,.0f}{figures}  {counts}")


if __name__ == "__main__":
    sys.exit(main())
