"""Tests that an enforced affinity keeps pods on its nodes, compared with what a scheduler does.

The oracle matches nodes as `MatchNodeSelectorTerms` does, for the operators of this test.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loading import load_policy
from rules.engine.fixing import FixResult, fix
from rules.profile.context import Context
from tests.testkit.cases import TODAY

FIELD = "requiredDuringSchedulingIgnoredDuringExecution"
POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
profiles:
- name: ours
  extends: [nvidia]
  affinities:
  - {resources: [nvidia.com/gpu], key: pool, values: [a, b], enforce: true}
  - {resources: [nvidia.com/gpu], key: zone, enforce: true}
"""
RULES = load_policy(POLICY, "policy").rule_set().restricted_to(["enforced-affinity"])
NODES = [
    {key: value for key, value in (("pool", pool), ("zone", zone), ("name", name)) if value}
    for pool, zone, name in itertools.product(["a", "b", "c", ""], ["x", "y", ""], ["n1", "n2"])
]


def allows(node: dict[str, str]) -> bool:
    return node.get("pool") in {"a", "b"} and "zone" in node


def meets(node: dict[str, str], expression: dict[str, Any]) -> bool:
    value, values = node.get(expression["key"]), expression.get("values", [])
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def matches(node: dict[str, str], term: dict[str, Any]) -> bool:
    fields = [{**field, "key": "name"} for field in term.get("matchFields", [])]
    demands = [*term.get("matchExpressions", []), *fields]
    return bool(demands) and all(meets(node, demand) for demand in demands)


def places(spec: dict[str, Any], node: dict[str, str]) -> bool:
    """Return whether a scheduler may place a pod with `spec` on `node`."""
    if any(node.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(FIELD)
    return required is None or any(matches(node, t) for t in required["nodeSelectorTerms"])


VALUES = {"pool": ["a", "b", "c"], "zone": ["x", "y"]}


def expressions() -> st.SearchStrategy[dict[str, Any]]:
    def about(key: str) -> st.SearchStrategy[dict[str, Any]]:
        values = st.lists(st.sampled_from(VALUES[key]), min_size=1, max_size=3, unique=True)
        listed = st.fixed_dictionaries(
            {"key": st.just(key), "operator": st.sampled_from(["In", "NotIn"]), "values": values}
        )
        plain = st.fixed_dictionaries(
            {"key": st.just(key), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
        )
        return listed | plain

    return st.sampled_from(["pool", "zone"]).flatmap(about)


def terms() -> st.SearchStrategy[dict[str, Any]]:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    return st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(expressions(), max_size=3),
            "matchFields": st.just([field]),
        },
    )


def specs() -> st.SearchStrategy[dict[str, Any]]:
    node = st.lists(terms(), min_size=1, max_size=3).map(
        lambda listed: {"nodeAffinity": {FIELD: {"nodeSelectorTerms": listed}}}
    )
    selector = st.dictionaries(st.sampled_from(["pool", "zone"]), st.sampled_from(["a", "c", "x"]))
    return st.fixed_dictionaries({}, optional={"affinity": node, "nodeSelector": selector})


def enforced(spec: dict[str, Any]) -> FixResult:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [container], **spec},
    }
    return fix(manifest, RULES, Context(today=TODAY, operation="CREATE"))


@settings(deadline=None, max_examples=500)
@given(specs())
def test_a_pod_runs_where_it_wants_and_may(spec: dict[str, Any]) -> None:
    result = enforced(spec)
    wanted = [node for node in NODES if places(spec, node) and allows(node)]
    if result.remaining.findings:
        assert not result.operations
        assert wanted == []
        return
    fixed: Any = result.manifest
    assert [node for node in NODES if places(fixed["spec"], node)] == wanted
    assert not enforced(fixed["spec"]).operations


def test_an_operator_that_is_no_text_makes_nothing_fail() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": ["Exists"]}]}
    result = enforced({"affinity": {"nodeAffinity": {FIELD: {"nodeSelectorTerms": [term]}}}})
    assert not result.remaining.failures
