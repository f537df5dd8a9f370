"""The usage of pods in a ResourceQuota: the rules and `gpuward gpus` agree with API servers.

A quota of zero makes an API server say in its refusal what it has computed for a pod.
"""

from __future__ import annotations

import random
import re
from typing import Any

from cluster.accounting.pod_requests import effective_requests, whole
from policies.loading import load_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY, inventory_of
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.quotas import await_quotas
from tests.testkit.dry_runs import DryRuns

CARD, MEMORY = "nvidia.com/gpu", "aliyun.com/gpu-mem"
RULES = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [ack]\n", "p").rule_set()
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "none", "namespace": "team-vision"},
    "spec": {"hard": {f"requests.{name}": "0" for name in (CARD, MEMORY)}},
}
_REQUESTED = re.compile(r"requests\.([\w./-]+)=(\w+)")
_ASKED = re.compile(r"asks for (\d+) (\S+),")


def random_container(chooser: random.Random, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    names = chooser.choice([(), (CARD,), (CARD,), (MEMORY,), (CARD, MEMORY)])
    limits = {each: chooser.choice([0, 1, 2, 3, "4", "1k"]) for each in names}
    asked = {"limits": limits, **({"requests": limits} if chooser.random() < 0.5 else {})}
    return container(name, resources=asked, **fields)


def random_pod(chooser: random.Random, overhead_class: str) -> dict[str, Any]:
    """A pod with up to four init containers, some of which are sidecars."""
    kinds: list[dict[str, Any]] = [{}, {"restartPolicy": "Always"}]
    first = [
        random_container(chooser, f"init-{n}", chooser.choice(kinds))
        for n in range(chooser.randrange(5))
    ]
    main = [random_container(chooser, f"main-{n}", {}) for n in range(chooser.randint(1, 3))]
    with_overhead = {"runtimeClassName": overhead_class, "overhead": {CARD: "1"}}
    extra = with_overhead if chooser.random() < 0.25 else {}
    return pod(*main, initContainers=first, **extra)


def by_the_rule(manifest: dict[str, Any]) -> dict[str, int]:
    """Return the pod's requests according to `quota-exceeded`."""
    inventory = inventory_of([QUOTA], RULES.profile)
    result = check(manifest, RULES, Context(TODAY, inventory=inventory))
    found = [f.message for f in result.findings if f.rule == "quota-exceeded"]
    asked = (match for message in found if (match := _ASKED.search(message)))
    return {match[2]: int(match[1]) for match in asked}


def test_the_usage_of_a_pod_is_what_the_quota_counts(plane: ControlPlane) -> None:
    runs = DryRuns(plane)
    overhead_class = f"heavy-{runs.namespace}"
    plane.create(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": overhead_class},
            "handler": "h",
            "overhead": {"podFixed": {CARD: "1"}},
        },
    )
    path = f"/api/v1/namespaces/{runs.namespace}/resourcequotas"
    plane.create(path, {**QUOTA, "metadata": {"name": "none"}})
    await_quotas(plane, runs.namespace)
    chooser = random.Random(1)  # noqa: S311  # equal pods in every run
    pods = [random_pod(chooser, overhead_class) for _ in range(120)]
    for manifest, answer in zip(pods, runs.submit_all(pods), strict=True):
        requested = answer.body.get("message", "").partition("requested: ")[2].partition(", used")
        counted = {
            name: int(amount.replace("k", "000"))
            for name, amount in _REQUESTED.findall(requested[0])
            if amount != "0"
        }
        shown = {name: whole(n) for name, n in effective_requests(manifest).items() if n}
        assert shown == counted, manifest
        # A GPU in the overhead alone is no request of a container: `misplaced-gpu` reports it.
        asked = {
            name
            for field in ("containers", "initContainers")
            for one in manifest["spec"][field]
            for name, amount in one["resources"]["limits"].items()
            if amount
        }
        assert by_the_rule(manifest) == {k: n for k, n in counted.items() if k in asked}, manifest
