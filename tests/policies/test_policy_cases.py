"""`gpuward policy test`: suites of cases for a policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lint.policy.cli import main
from tests.testkit.git_repository import BAD, FIXABLE, GOOD
from tests.testkit.paths import CASES
from tests.testkit.policy_mistakes import POLICY_HEADER


class Suite:
    """A folder with a policy and cases."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def case(self, name: str, manifest: str, expected: str, circumstances: str = "") -> None:
        self.write(f"{name}.yaml", manifest)
        self.write(f"{name}.expected.yaml", expected)
        if circumstances:
            self.write(f"{name}.case.yaml", circumstances)

    def run(self, *options: str) -> tuple[int, list[str]]:
        """The exit status, and the lines of the output."""
        status = main(["test", *options, str(self.folder)])
        said = self._capsys.readouterr()
        return status, (said.out + said.err).replace(f"{self.folder}/", "").splitlines()


@pytest.fixture
def suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Suite:
    monkeypatch.chdir(tmp_path)
    return Suite(tmp_path, capsys)


def test_a_case_says_as_much_as_it_wants(suite: Suite) -> None:
    suite.case("clean", GOOD, "findings: []\nfixed: null\nrefused: false\n")
    suite.case("bad", BAD, "findings: [{rule: visible-devices-env}]\n")
    suite.case(
        "worse", BAD, "findings: [{action: deny, container: a, safe: false}]\nrefused: true\n"
    )
    assert suite.run() == (0, ["3 passed"])


def test_a_difference_shows_what_is_expected_and_what_is_there(suite: Suite) -> None:
    suite.case(
        "bad", BAD, "findings: [{rule: visible-devices-env, action: warn}]\nrefused: false\n"
    )
    suite.case("fixed", FIXABLE, "findings: [{rule: request-only}]\nfixed: null\n")
    status, lines = suite.run("--rule=visible-devices-env", "--rule=request-only")
    assert status == 1
    got = {
        "rule": "visible-devices-env",
        "action": "deny",
        "path": "/spec/containers/0/env/0/value",
        "container": "a",
        "key": "NVIDIA_VISIBLE_DEVICES",
    }
    assert lines[:6] == [
        "failed: bad.yaml",
        '  - finding: {"rule": "visible-devices-env", "action": "warn"}',
        f"  + finding: {json.dumps(got)}",
        "  - refused: false",
        "  + refused: true",
        "failed: fixed.yaml",
    ]
    added = next(line.split() for line in lines if line.startswith("  +  "))
    assert added == ["+", '"limits":', "{"]
    assert lines[-1] == "2 failed"
    fixed = yaml.safe_load(FIXABLE)
    fixed["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 2}
    suite.case("fixed", FIXABLE, yaml.safe_dump({"findings": [], "fixed": fixed}))
    lines = suite.run("--rule=request-only")[1]
    changed = [line.strip() for line in lines if line.startswith(("  -", "  +")) and "gpu" in line]
    assert [" ".join(line.split()) for line in changed[-2:]] == [
        '- "nvidia.com/gpu": 2',
        '+ "nvidia.com/gpu": 1',
    ]


def test_the_policy_is_what_is_tested(suite: Suite) -> None:
    suite.case(
        "bad", BAD, "findings: [{rule: visible-devices-env, action: warn}]\nrefused: false\n"
    )
    assert suite.run()[0] == 1
    suite.write("gpuward.yaml", POLICY_HEADER + "rules: {visible-devices-env: {action: warn}}\n")
    assert suite.run() == (0, ["1 passed"])
    suite.write("other.txt", POLICY_HEADER)
    assert suite.run("--policy=other.txt")[0] == 1
    suite.write("gpuward.yaml", "broken")
    assert suite.run()[0] == 2


def test_a_case_may_have_circumstances(suite: Suite) -> None:
    suite.write("gpuward.yaml", POLICY_HEADER + """exceptions:
- {rules: [visible-devices-env], match: {namespace: a}, reason: r, expires: 2030-01-01}
""")  # fmt: skip
    clean, bad = "findings: []\n", "findings: [{rule: visible-devices-env}]\n"
    suite.case("excepted", BAD, clean, "namespace: a\ntoday: 2030-01-01\n")
    suite.case("ended", BAD, bad, "namespace: a\ntoday: 2030-01-02\n")
    suite.case("elsewhere", BAD, bad, "namespace: b\ntoday: 2030-01-01\n")
    suite.case("another-rule", BAD, clean, "rules: [zero-gpu]\n")
    suite.case("off", BAD, clean, 'policy: {rules: {visible-devices-env: {action: "off"}}}\n')
    assert suite.run() == (0, ["5 passed"])


@pytest.mark.parametrize(
    ("manifest", "expected", "circumstances", "message"),
    [
        (BAD, "", "", "bad.expected.yaml: has no document"),
        (BAD, "findings: {}\n", "", "bad.expected.yaml: findings should be a list"),
        (BAD, "findings: [{rul: x}]\n", "", "bad.expected.yaml: unknown key 'rul'"),
        (BAD, "findings: []\nfix: {}\n", "", "bad.expected.yaml: unknown key 'fix'"),
        ("a: [", "findings: []\n", "", "bad.yaml: "),
        (BAD, "findings: []\n---\na: 1\n", "", "bad.expected.yaml: has 2 documents"),
        (BAD, "findings: []\n", "namespaces: x\n", "bad.case.yaml: unknown key 'namespaces'"),
        (BAD, "findings: []\n", "today: soon\n", "bad.case.yaml: today: "),
        (BAD, "findings: []\n", "rules: [zero-gpus]\n", "there is no rule 'zero-gpus'"),
        (BAD, "findings: []\n", "policy: {rule: {}}\n", "unknown key 'rule'"),
        (BAD, "findings: []\n", "policy: 1\n", "bad.case.yaml: policy should be an object"),
        (BAD, "findings: []\n", "rules: zero-gpu\n", "bad.case.yaml: rules should be a list"),
        (BAD, "findings: []\n", "user: 5\n", "bad.case.yaml: user should be text"),
        (BAD, "findings: []\n", "operation: DELETE\n", "should be one of CREATE, UPDATE"),
    ],
)
def test_a_case_that_cannot_be_read_never_passes(
    suite: Suite, manifest: str, expected: str, circumstances: str, message: str
) -> None:
    suite.case("bad", manifest, expected, circumstances)
    suite.case("good", GOOD, "findings: []\n")
    status, lines = suite.run()
    assert (status, lines[-1]) == (3, "1 passed, 1 not evaluated")
    assert any(line.startswith("not evaluated: ") and message in line for line in lines)


def test_a_manifest_without_expectations_never_passes(suite: Suite) -> None:
    assert suite.run()[0] == 2
    suite.write("alone.yaml", GOOD)
    assert suite.run() == (
        3,
        ["not evaluated: alone.expected.yaml: no such file or directory", "1 not evaluated"],
    )


def test_the_name_of_a_clean_case_says_what_is_expected(suite: Suite) -> None:
    suite.write("clean-good.yaml", GOOD)
    suite.write("clean-bad.yaml", BAD)
    status, lines = suite.run()
    assert (status, lines[0], lines[-1]) == (1, "failed: clean-bad.yaml", "1 passed, 1 failed")
    assert not list(suite.folder.glob("*.expected.yaml"))


def test_expected_files_can_be_written(suite: Suite) -> None:
    suite.write("new.yaml", BAD)
    suite.case("changed", FIXABLE, "findings: []\n")
    suite.case("same", GOOD, "findings: [] # a comment\n")
    assert suite.run("--update")[1][-1] == "1 passed, 2 written"
    assert suite.run() == (0, ["3 passed"])
    assert "comment" in (suite.folder / "same.expected.yaml").read_text()
    written = yaml.safe_load((suite.folder / "new.expected.yaml").read_text())
    assert written["refused"] is True
    assert "message" not in written["findings"][0]


@pytest.mark.parametrize("rule", ["request-only", "visible-devices-envfrom"])
def test_the_cases_of_gpuward_are_in_this_format(
    rule: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CASES)
    assert main(["test", "--rule", rule, rule]) == 0
    assert capsys.readouterr().out.endswith(" passed\n")
