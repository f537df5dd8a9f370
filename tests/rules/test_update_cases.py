"""`make cases` writes golden files, and reports mistakes instead of writing wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from policies.loading import default_policy
from rules.base.traits import NODE_NAME
from rules.catalog.index import CATALOG
from tests.testkit.cases import Case, cases
from tools.update_cases import main, write_result

POD = """\
# A pod that only shows something.
apiVersion: v1
kind: Pod
metadata: {name: training}
spec:
  containers:
    - name: main
      image: example.com/training:1
      resources: {limits: {nvidia.com/gpu: NUMBER}}
"""


def new_case(folder: Path, rule: str, name: str = "fault", number: str = "0.5") -> Case:
    file = folder / f"{name}.yaml"
    file.write_text(POD.replace("NUMBER", number), encoding="utf-8")
    return Case(rule, file)


def test_the_result_is_written(tmp_path: Path) -> None:
    case = new_case(tmp_path, "fractional-gpu")
    assert write_result(case) == ""
    (finding,) = case.expected["findings"]
    assert finding["key"] == "limits.nvidia.com/gpu"


def test_every_golden_file_can_be_written_again(tmp_path: Path) -> None:
    for case in cases()[::25]:
        for file in case.file.parent.glob(f"{case.file.stem}.*yaml"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        copy = Case(case.rule, tmp_path / case.file.name)
        copy.expected_file.unlink(missing_ok=True)
        assert write_result(copy) == "", case.name
        assert copy.expected == case.expected


def test_a_rule_that_is_not_listed_is_reported(tmp_path: Path) -> None:
    case = new_case(tmp_path, "no-such-rule")
    assert "list it in rules/catalog/order.py" in write_result(case)
    assert not case.expected_file.exists()


def test_a_case_without_findings_is_called_clean(tmp_path: Path) -> None:
    assert "begins with clean-" in write_result(new_case(tmp_path, "fractional-gpu", number="1"))
    clean = new_case(tmp_path, "fractional-gpu", "clean-whole", "1")
    assert write_result(clean) == ""
    assert not clean.expected_file.exists()
    assert "begin with clean-" in write_result(new_case(tmp_path, "fractional-gpu", "clean-half"))


def change_rule(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """Replace fields of a rule in the catalog of every policy."""
    changed = [rule._replace(**fields) if rule.name == name else rule for rule in CATALOG]
    monkeypatch.setattr("policies.policy.CATALOG", changed)
    # Rule sets of before are kept.
    alone = default_policy().rule_set().restricted_to([name])
    monkeypatch.setattr("tests.testkit.cases._alone", lambda *_: alone)


def test_a_rule_that_raises_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError

    change_rule(monkeypatch, "fractional-gpu", check=fail)
    case = new_case(tmp_path, "fractional-gpu")
    assert "the rule failed: " in write_result(case)
    assert not case.expected_file.exists()


def test_needs_that_the_pod_does_not_meet_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_rule(monkeypatch, "fractional-gpu", needs=(NODE_NAME,))
    mistake = write_result(new_case(tmp_path, "fractional-gpu"))
    assert mistake.endswith("there are only GPU_RESOURCE, UNUSUAL_AMOUNT")


def test_an_unknown_name_is_answered_with_a_known_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fractional_gpu"]) == 1
    assert 'did you mean "fractional-gpu"?' in capsys.readouterr().err
