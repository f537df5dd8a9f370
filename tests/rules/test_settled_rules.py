"""A new rule turns no test red that is not about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies import policy
from policies.loading import default_policy
from rules.base.traits import GPU_RESOURCE
from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.finding import Action, Finding
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import Rule
from tests.testkit.cases import TODAY
from tests.testkit.paths import ROOT
from tests.testkit.settled_rules import SETTLED, rules_that_act

GPU_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "trainer"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example.com/train:1",
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
}


def everything(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield a finding about every pod."""
    yield Finding(path=(*pod.path, "containers"), key="experiment", message="a GPU pod")


NEW = Rule(
    name="every-gpu-pod",
    summary="a pod has a GPU",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    check=everything,
    needs=(GPU_RESOURCE,),
)


@pytest.mark.parametrize(
    ("test", "acts"),
    [
        ("tests/rules/test_invariants.py", True),
        ("tests/lint/test_corpus.py", True),
        ("tests/webhook/test_replica_cache.py", True),
        ("tests/webhook/test_decider.py", False),
        ("tests/lint/test_lint.py", False),
        ("tests/policies/test_vendor_pages.py", False),
        ("tests/rules/test_rule_interaction.py", False),
    ],
)
def test_a_new_rule_acts_only_where_tests_are_about_the_catalog(
    test: str,
    acts: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled = tuple(rule for rule in CATALOG if rule.name in SETTLED)
    rules = rules_that_act(ROOT / test, (*settled, NEW))
    assert (NEW in rules) == acts
    monkeypatch.setattr(policy, "CATALOG", rules)
    found = check(GPU_POD, default_policy().rule_set(), Context(TODAY, namespace="ml")).findings
    assert [f.rule for f in found if f.action > Action.AUDIT] == ["every-gpu-pod"] * acts


def test_every_settled_rule_exists() -> None:
    assert {rule.name for rule in CATALOG} >= SETTLED
