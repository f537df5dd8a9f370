"""The rules that act in a test: all of them, or those that tests about other subjects know.

A rule that warns about every GPU pod would concern hundreds of tests that say what the linter
prints, or what the webhook answers, about such a pod. So a rule acts only in the tests about the
catalog, and in all others once `tests/data/settled_rules.txt` lists it. List a new rule there if a
test outside of its cases is about it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from policies import policy
from rules.catalog.index import CATALOG
from rules.rule import Rule
from tests.testkit.paths import DATA, ROOT

SETTLED = frozenset((DATA / "settled_rules.txt").read_text(encoding="utf-8").split())
UNSETTLED = frozenset(rule.name for rule in CATALOG) - SETTLED
"""For tests that run gpuward as a program of its own, in which every rule acts."""
# Folders and modules in which every rule acts: they run over the cases of all rules, say of each
# rule what its module, its page or the public manifests must have, or use a second process.
_ABOUT_THE_CATALOG = (
    *("tests/rules/test_catalog", "tests/rules/test_fix_safety", "tests/rules/test_invariants"),
    *("tests/rules/test_makers", "tests/rules/test_malformed", "tests/rules/test_messages"),
    *("tests/rules/test_object", "tests/rules/test_platform_agents", "tests/rules/test_robust"),
    *("tests/rules/test_update_cases", "tests/rules/test_views_after_edits"),
    *("tests/policies/test_effective", "tests/policies/test_policy.py"),
    *("tests/lint/test_corpus", "tests/lint/test_examples", "tests/webhook/test_decision"),
    *("tests/webhook/test_replica", "tests/webhook/test_evaluator"),
    *("tests/cluster/test_match", "tests/cluster/test_in_process", "tests/cluster/test_patches"),
)


def rules_that_act(test: Path, catalog: Collection[Rule[Any]] = CATALOG) -> tuple[Rule[Any], ...]:
    """The rules of `catalog` that act in the module `test`."""
    name = test.relative_to(ROOT).as_posix() if test.is_relative_to(ROOT) else ""
    if name.startswith(_ABOUT_THE_CATALOG):
        return tuple(catalog)
    return tuple(rule for rule in catalog if rule.name in SETTLED)


def acting() -> tuple[str, ...]:
    """The names of the rules that policies have now."""
    return tuple(rule.name for rule in getattr(policy, "CATALOG"))  # noqa: B009


def choose_rules(test: Path) -> None:
    """Let policies have the rules that act in the module `test`."""
    setattr(policy, "CATALOG", rules_that_act(test))  # noqa: B010  # it is no part of its interface
