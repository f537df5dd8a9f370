"""Rules about claims look for the name that is meant a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from policies.loading import default_policy
from rules.catalog.claims import invalid_claim, missing_claim, unknown_device_class
from rules.engine.fixing import check
from rules.inventory.inventory import MAX_OBJECTS_IN_NAMESPACE
from rules.profile.context import Context
from rules.workloads.referred_objects import add_objects, new_builder
from tests.testkit.cases import TODAY

FEW = 20
MANY = 500
DRA = "resource.k8s.io/v1"
REQUEST = {"exactly": {"deviceClassName": "gpu.nvidia.com"}}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, str], list[str]]:
    """The words for which a module calls one of its functions."""

    def count(module: ModuleType, name: str) -> list[str]:
        words: list[str] = []
        real = getattr(module, name)

        def noting(*arguments: Any) -> Any:
            words.append(str(arguments))
            return real(*arguments)

        monkeypatch.setattr(module, name, noting)
        return words

    return count


def claim(devices: Any) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "ml"}
    return {"apiVersion": DRA, "kind": "ResourceClaim", "metadata": metadata} | {
        "spec": {"devices": devices}
    }


def evaluate(manifest: Any, *objects: Any) -> set[str]:
    """The rules that report something."""
    rules = default_policy().rule_set()
    builder = new_builder(rules.profile)
    for each in objects:
        add_objects(builder, each, "ml")
    context = Context(TODAY, "ml", inventory=builder.inventory())
    return {finding.rule for finding in check(manifest, rules, context).findings}


def test_unknown_requests_of_a_claim(counted: Any) -> None:
    words = counted(invalid_claim, "nearest_word")
    constraint = {"requests": [f"gpx{n}" for n in range(MANY)], "matchAttribute": "a/b"}
    requests = [{"name": f"gpu{n}", **REQUEST} for n in range(30)]
    assert "invalid-claim" in evaluate(claim({"requests": requests, "constraints": [constraint]}))
    assert 0 < len(words) <= FEW


def test_unknown_classes_of_a_claim(counted: Any) -> None:
    words = counted(unknown_device_class, "_meant_class")
    name = {"exactly": {"deviceClassName": "class-of-others"}}
    evaluate(claim({"requests": [{"name": f"gpu{n}", **name} for n in range(MANY)]}))
    assert 0 < len(words) < MANY


def test_unknown_claims_of_a_pod(counted: Any) -> None:
    words = counted(missing_claim, "nearest_word")
    template = {"apiVersion": DRA, "kind": "ResourceClaimTemplate"}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", **REQUEST}]}}}
    known = [
        {**template, "metadata": {"name": f"t{n}", "namespace": "ml"}, "spec": spec}
        for n in range(MAX_OBJECTS_IN_NAMESPACE)
    ]
    entries = [{"name": f"c{n}", "resourceClaimTemplateName": f"u{n}"} for n in range(MANY)]
    entries.append({"name": "known", "resourceClaimTemplateName": "t1"})
    used = [{"name": "known", "request": f"gpx{n}"} for n in range(MANY)]
    container = {"name": "main", "image": "example.com/main:1", "resources": {"claims": used}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml"}}
    pod["spec"] = {"resourceClaims": entries, "containers": [container]}
    assert "missing-claim" in evaluate(pod, *known)
    assert 0 < len(words) <= 2 * FEW
