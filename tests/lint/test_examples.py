"""Tests of the examples that `gpuward explain` and the console show."""

from __future__ import annotations

import pytest

from reports import explain
from reports.explain import example_of
from reports.findings import ACTION_BY_LEVEL
from rules.all_rules import ALL_RULES
from tests.testkit.lint_command import LintCommand
from tests.testkit.policy_mistakes import POLICY_HEADER

NAMES = [rule.name for rule in ALL_RULES if rule.family != "container_files"]


# What a file cannot say: who sends a request, and which objects are all of their kind.
ONLY_IN_A_CLUSTER = {"left-queue", "made-up-owner", "no-fitting-node", "quota-scope-gap"}


@pytest.mark.parametrize("rule", [name for name in NAMES if name not in ONLY_IN_A_CLUSTER])
def test_an_example_has_the_fault_and_its_fix(command: LintCommand, rule: str) -> None:
    example = example_of(rule)
    assert example is not None
    given = dict(example.circumstances)
    command.write("gpuward.yaml", POLICY_HEADER + given.get("With the policy", ""))
    command.write("example.yaml", example.manifest + "\n")
    command.write("objects.yaml", given.get("Beside the objects", ""))
    report = command.json("--select", rule, "example.yaml", "objects.yaml").report
    found = [
        f"{ACTION_BY_LEVEL[finding['level']].word} at {finding['pointer']}: {finding['message']}"
        for finding in report["findings"]
        if finding["file"] == "example.yaml"
    ]
    assert found == [*example.findings]
    fixes = any(finding["fixable"] for finding in report["findings"])
    assert fixes == bool(example.diff)


def test_explain_shows_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.main(["request-only"]) == 0
    out = capsys.readouterr().out
    manifest, _, rest = out.partition("\n\nExample: ")[2].partition("\n- deny at /spec/")
    assert "    kind: Pod\n" in manifest
    assert "`gpuward fix` changes" in rest
    assert "\n    +        limits:\n" in rest


def test_an_example_that_needs_a_policy_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.main(["gpu-namespace"]) == 0
    out = capsys.readouterr().out
    assert "\nWith the policy\n\n    rules:\n      gpu-namespace:\n" in out
