"""The cases of other webhooks and policies, with the outcomes that docs/compatibility.md states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from policies.loading import load_policy
from rules.engine.fixing import fix
from rules.finding import Action
from rules.profile.context import Context
from tests.testkit.cases import TODAY
from tools.doc_pages import peers

CASES = [(peer, case) for peer in peers() for case in peer["cases"]]


def pod(peer: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    containers = [
        {"name": "main", "image": "example.com/main:1", **container}
        for container in case.get("containers", [{}])
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sample", "annotations": case.get("annotations", {})},
        "spec": {**peer.get("spec", {}), **case.get("spec", {}), "containers": containers},
    }


@pytest.mark.parametrize(("peer", "case"), CASES, ids=[case["says"] for _, case in CASES])
def test_gpuward_decides_as_the_page_says(peer: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    policy = {"apiVersion": "gpuward.io/v1", "kind": "Policy", "profiles": peer["profiles"]}
    rules = load_policy(yaml.safe_dump(policy), "policy").rule_set()
    context = Context(TODAY, namespace="default", operation="CREATE")
    result = fix(pod(peer, case), rules, context)
    assert not result.remaining.failures
    left = {finding.action for finding in result.remaining.findings}
    found = {f.rule for f in (*result.fixed, *result.remaining.findings) if f.action > Action.AUDIT}
    if Action.DENY in left:
        outcome = "refused"
    elif Action.WARN in left:
        outcome = "warned"
    else:
        outcome = "fixed" if found else "allowed"
    assert (outcome, sorted(found)) == (case["gpuward"], case.get("rules", []))
    assert case["peer"] == case["gpuward"] or "why" in case, "say why the outcomes differ"
