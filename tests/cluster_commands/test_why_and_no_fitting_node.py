"""`gpuward why` and the rule `no-fitting-node` never disagree about the same cluster."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from cluster.source.objects import name_of
from cluster.why.explanation import Answer, explain
from cluster.why.nodes import read_node
from policies.loading import load_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.cases import TODAY, inventory_of
from tests.testkit.random_seeds import random_seeds
from tests.testkit.scheduling.random_clusters import Scenario, random_scenario

RULE = "no-fitting-node"
# A label of nodes that profiles know, and that the rule compares.
PRODUCT = "nvidia.com/gpu.product"


def is_found(scenario: Scenario) -> bool:
    """Return whether the rule says that no node of the cluster can ever run the pod."""
    policy = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "default")
    nodes = [{"apiVersion": "v1", "kind": "Node", **node} for node in scenario.nodes]
    inventory = inventory_of(nodes, policy.profile, has_all_nodes=True)
    pod = {"apiVersion": "v1", "kind": "Pod", **scenario.pod}
    context = Context(TODAY, "ml")._replace(inventory=inventory)
    return any(found.rule == RULE for found in check(pod, policy.rule_set(), context).findings)


def of_products(scenario: Scenario) -> Scenario:
    """The scenario with a label that the rule knows."""
    parts: Any = json.loads(json.dumps(scenario).replace('"model"', f'"{PRODUCT}"'))
    return Scenario(*parts)


@pytest.mark.parametrize("seed", random_seeds(0, 2))
def test_where_the_rule_finds_no_node_why_finds_none(seed: int) -> None:
    random = Random(seed)  # noqa: S311  # not a secret
    answers: Counter[tuple[bool, Answer]] = Counter()
    for _ in range(150):
        scenario = of_products(random_scenario(random))
        # Nothing but what the rule looks at as well: of an empty cluster.
        nodes = [read_node(raw, None) for raw in scenario.nodes]
        found = explain(scenario.pod, nodes, exists=True)
        answers[is_found(scenario), found.answer] += 1
        assert not (is_found(scenario) and found.answer is not Answer.CANNOT), (
            [name_of(raw) for raw in scenario.nodes],
            scenario.pod,
            found.verdict,
        )
    assert answers[True, Answer.CANNOT] > 3, answers
    assert answers[False, Answer.CAN] > 3, answers
