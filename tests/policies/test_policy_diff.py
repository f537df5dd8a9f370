"""`gpuward policy diff`: what another policy would change for manifests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lint.policy.cli import main
from tests.testkit.git_repository import BAD, FIXABLE, GOOD
from tests.testkit.policy_mistakes import POLICY_HEADER

LENIENT = (
    POLICY_HEADER + "rules: {visible-devices-env: {action: warn}, request-only: {fix: false}}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two policies and four manifests."""
    monkeypatch.chdir(tmp_path)
    ignored = BAD.replace("all}]", "all}] # gpuward: ignore[visible-devices-env] reviewed")
    files = {"old.yaml": LENIENT, "new.yaml": POLICY_HEADER}
    files |= {"deploy/bad.yaml": ignored, "deploy/both.yaml": f"{GOOD}---\n{FIXABLE}"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_each_object_that_is_treated_otherwise_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diff", "old.yaml", "new.yaml", "-f", "deploy"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "deploy/bad.yaml: Pod x: warned -> refused",
        '  line 7: visible-devices-env in container "a": warned -> refused',
        "deploy/both.yaml: Pod z: refused -> fixed",
        '  line 14: request-only in container "a": refused -> fixed',
        "the new policy treats 2 objects differently: 1 warned -> refused, 1 refused -> fixed",
    ]
    assert main(["diff", "new.yaml", "old.yaml", "--output=json", "-f", "deploy/bad.yaml"]) == 1
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["file"], change["old"], change["new"]) == (
        "deploy/bad.yaml",
        "refused",
        "warned",
    )
    assert change["findings"][0]["rule"] == "visible-devices-env"


@pytest.mark.usefixtures("folder")
def test_equal_policies_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "old.yaml", "old.yaml", "-f", "deploy"]) == 0
    assert capsys.readouterr().out == "the new policy treats 0 objects differently\n"


def test_what_cannot_be_evaluated_is_never_equal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "deploy" / "torn.yaml").write_text("kind: [")
    assert main(["diff", "old.yaml", "old.yaml", "-f", "deploy"]) == 3
    assert "not evaluated: deploy/torn.yaml:1: " in capsys.readouterr().err
    assert main(["diff", "old.yaml", "no-such.yaml", "-f", "deploy"]) == 2
    assert main(["diff", "old.yaml", "new.yaml", "-f", "no-such"]) == 2
