"""The answers of the linter about GpuExceptions in files."""

from __future__ import annotations

import datetime

import pytest

from tests.testkit.lint_command import LintCommand

POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
gpuExceptions:
  - {rules: [absurd-count], namespaces: vision, longestDays: 30, approval: none}
  - {rules: [privileged-gpu], namespaces: vision, longestDays: 30}
"""
SOON = datetime.datetime.now(tz=datetime.UTC).date() + datetime.timedelta(days=7)
OBJECT = """\
apiVersion: gpuward.io/v1alpha1
kind: GpuException
metadata: {name: x, namespace: vision}
spec:
  rules: [RULE]
  reason: benchmarks
  expires: END
"""


def manifest(rule: str = "absurd-count", end: object = SOON) -> str:
    return OBJECT.replace("RULE", rule).replace("END", str(end))


def lint(command: LintCommand, text: str, *options: str) -> tuple[int, list[str]]:
    """Lint one file; the status, and the remarks as LINE:COLUMN LEVEL MESSAGE."""
    command.write("x.yaml", text)
    done = command.json("x.yaml", *options)
    remarks = done.report["remarks"]
    found = [f"{r['line']}:{r['column']} {r['level']} {r['message']}" for r in remarks]
    return done.status, found


CALLED = "the GpuException x"


@pytest.mark.parametrize(
    ("text", "status", "remark"),
    [
        (manifest(), 0, ""),
        (manifest("absurd-cont"), 1, f"5:3 error {CALLED}: there is no rule 'absurd-cont'"),
        (manifest(end="2031-02-31"), 1, f"7:12 error {CALLED}: '2031-02-31' is not a date"),
        (manifest(end="2020-01-01"), 0, f"4:1 warning {CALLED}: not accepted: it ended after"),
        (manifest("zero-gpu"), 1, f"4:1 error {CALLED}: not accepted: the policy allows no"),
        (manifest(end="2090-01-01"), 1, f"4:1 error {CALLED}: not accepted: an exception to"),
        (manifest("privileged-gpu"), 0, f"4:1 note {CALLED}: not accepted: it needs the label"),
    ],
)
def test_the_report_says_why_the_cluster_would_not_accept_it(
    command: LintCommand, text: str, status: int, remark: str
) -> None:
    command.write("gpuward.yaml", POLICY)
    found_status, remarks = lint(command, text, "--policy=gpuward.yaml")
    assert found_status == status
    assert [line.startswith(remark) for line in remarks] == ([True] if remark else []), remarks


def test_without_a_policy_only_the_object_itself_is_checked(command: LintCommand) -> None:
    assert lint(command, manifest("zero-gpu")) == (0, [])
    status, (remark,) = lint(command, manifest("zero-gp"))
    assert status == 1
    assert 'did you mean "zero-gpu"?' in remark


def test_a_file_with_nothing_else_is_something_to_evaluate(command: LintCommand) -> None:
    command.write("x.yaml", manifest())
    done = command("x.yaml", "--require-input")
    assert (done.status, done.errors) == (0, "")
