"""The rules predict whether the API server accepts each pair of GPU amounts.

Every amount as a limit is combined with every amount as a request, in pods and in quotas, for
correct names, wrong names, and names that are no devices.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import DryRuns, refusal_causes

RULES = default_policy().rule_set()
AMOUNTS = (0, 1, 2, "500m", "1.9999", "999999u", "-1", "2k")
PODS = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "aliyun.com/gpu-mem", "aliyun.com/gpu-count")
WRONG_NAMES = ("nvidia.com/gpus", "nvidia.com/GPU", "gpu", "requests.nvidia.com/gpu")
QUOTAS = ("requests.nvidia.com/gpu", "limits.nvidia.com/gpu", "nvidia.com/gpu")


@pytest.fixture(scope="module")
def runs(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


def pod_with_amounts(name: str, limit: Any, request: Any) -> Any:
    amounts = {"limits": limit, "requests": request}
    resources = {field: {name: amount} for field, amount in amounts.items() if amount is not None}
    return pod(container(resources=resources))


def quota(key: str, amount: Any) -> Any:
    spec = {"hard": {key: amount}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}


def disagreements(runs: DryRuns, manifests: dict[str, Any]) -> dict[str, str]:
    answers = runs.submit_all(manifests.values())
    found = {}
    for (name, manifest), answer in zip(manifests.items(), answers, strict=True):
        findings = check(manifest, RULES, Context(TODAY)).findings
        announced = any(finding.api_refuses for finding in findings)
        if announced != bool(refusal_causes(answer)):
            found[name] = f"announced {announced} by {[finding.rule for finding in findings]}"
    return found


@pytest.mark.parametrize("name", [*PODS, *WRONG_NAMES])
def test_pods_are_refused_as_announced(runs: DryRuns, name: str) -> None:
    pairs = product((None, *AMOUNTS), repeat=2)
    pods = {f"limit {lim}, request {req}": pod_with_amounts(name, lim, req) for lim, req in pairs}
    assert disagreements(runs, pods) == {}


@pytest.mark.parametrize("key", QUOTAS)
def test_quotas_are_refused_as_announced(runs: DryRuns, key: str) -> None:
    quotas = {str(amount): quota(key, amount) for amount in AMOUNTS}
    assert disagreements(runs, quotas) == {}
