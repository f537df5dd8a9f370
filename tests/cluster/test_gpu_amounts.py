"""What the API server makes of every pair of amounts, the rules say beforehand.

For names that are right, wrong, and no names of devices: each amount as a limit beside each
as a request, in pods and in quotas.
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
from tests.testkit.dry_runs import DryRuns, objections

RULES = default_policy().rule_set()
AMOUNTS = (0, 1, 2, "500m", "1.9999", "999999u", "-1", "2k")
PODS = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "aliyun.com/gpu-mem", "aliyun.com/gpu-count")
WRONG = ("nvidia.com/gpus", "nvidia.com/GPU", "gpu", "requests.nvidia.com/gpu")
QUOTAS = ("requests.nvidia.com/gpu", "limits.nvidia.com/gpu", "nvidia.com/gpu")


@pytest.fixture(scope="module")
def asked(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


def asking(name: str, limit: Any, request: Any) -> Any:
    given = {"limits": limit, "requests": request}
    resources = {field: {name: amount} for field, amount in given.items() if amount is not None}
    return pod(container(resources=resources))


def quota(key: str, amount: Any) -> Any:
    spec = {"hard": {key: amount}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}


def disagreeing(asked: DryRuns, manifests: dict[str, Any]) -> dict[str, str]:
    answers = asked.ask_all(manifests.values())
    found = {}
    for (name, manifest), answer in zip(manifests.items(), answers, strict=True):
        findings = check(manifest, RULES, Context(TODAY)).findings
        announced = any(finding.api_refuses for finding in findings)
        if announced != bool(objections(answer)):
            found[name] = f"announced {announced} by {[finding.rule for finding in findings]}"
    return found


@pytest.mark.parametrize("name", [*PODS, *WRONG])
def test_pods_are_refused_as_announced(asked: DryRuns, name: str) -> None:
    pairs = product((None, *AMOUNTS), repeat=2)
    pods = {f"limit {lim}, request {req}": asking(name, lim, req) for lim, req in pairs}
    assert disagreeing(asked, pods) == {}


@pytest.mark.parametrize("key", QUOTAS)
def test_quotas_are_refused_as_announced(asked: DryRuns, key: str) -> None:
    quotas = {str(amount): quota(key, amount) for amount in AMOUNTS}
    assert disagreeing(asked, quotas) == {}
