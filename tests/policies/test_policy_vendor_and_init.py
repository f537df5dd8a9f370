"""`gpuward policy vendor` and `gpuward policy init`, and cases of several documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from lint.policy.cli import main
from tests.testkit.git_repository import BAD, FIXABLE, GOOD

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
WARN = POLICY + "rules: {visible-devices-env: {action: warn}}\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, which is the working folder, beside the shared policy org.yaml."""
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    (tmp_path / "org.yaml").write_text(WARN)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main([*arguments])
    out, errors = capsys.readouterr()
    return status, out + errors


def test_a_shared_policy_is_copied_and_named_with_its_digest(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = POLICY + "extends:\n  - strict\n  - ./org.yaml # shared\nrules: {}\n"
    (repository / "gpuward.yaml").write_text(text)
    status, out = run(capsys, "vendor", "../org.yaml")
    assert (status, out) == (0, "org.yaml: written\ngpuward.yaml: written\n")
    new = (repository / "gpuward.yaml").read_text()
    before, _, after = new.partition("./org.yaml@sha256:")
    assert before.endswith('  - strict\n  - "')
    assert after.endswith('" # shared\nrules: {}\n')
    assert run(capsys, "show")[0] == 0
    assert (
        run(capsys, "vendor", "../org.yaml")[1]
        == "org.yaml: up to date\ngpuward.yaml: up to date\n"
    )
    (repository.parent / "org.yaml").write_text(POLICY)
    assert run(capsys, "vendor", "../org.yaml")[0] == 0
    assert run(capsys, "show")[0] == 0
    assert (repository / "gpuward.yaml").read_text() != new


def test_without_an_entry_it_says_what_to_write(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = run(capsys, "vendor", "../org.yaml", "--to", "policies/org.yaml")
    assert status == 0
    line = out.splitlines()[-1]
    assert line.startswith('gpuward.yaml: add to extends: "policies/org.yaml@sha256:')
    (repository / "gpuward.yaml").write_text(
        f"{POLICY}extends: [{line.partition('extends: ')[2]}]\n"
    )
    assert run(capsys, "show")[0] == 0


def test_nothing_but_a_policy_is_copied_or_overwritten(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "notes.yaml").write_text("a: 1\n")
    assert run(capsys, "vendor", "../org.yaml", "--to", "notes.yaml")[0] == 2
    assert (repository / "notes.yaml").read_text() == "a: 1\n"
    assert run(capsys, "vendor", "notes.yaml", "--to", "x.yaml")[0] == 2
    (repository.parent / "gpuward.yaml").write_text(WARN)
    status, out = run(capsys, "vendor", "../gpuward.yaml")
    assert (status, "name it with --to" in out) == (2, True)
    (repository / "up.yaml").write_text(POLICY + "extends: [./notes.yaml]\n")
    status, out = run(capsys, "vendor", "up.yaml", "--to", "x.yaml")
    assert (status, "a whole policy in one file" in out) == (2, True)


MANIFESTS = {
    "gke": ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}", ["gke"]),
    "two platforms": ("limits: {aliyun.com/gpu-mem: 4, amd.com/gpu: 1}", ["ack", "amd"]),
    "nvidia": ("limits: {nvidia.com/gpu: 1}", ["nvidia"]),
    "none": ("a: b", ["nvidia"]),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_first_policy_has_the_profiles_of_the_manifests(
    repository: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    line, profiles = MANIFESTS[case]
    (repository / "deploy").mkdir()
    (repository / "deploy" / "pod.yaml").write_text(f"{GOOD}# {line}\n")
    status, out = run(capsys, "init")
    assert status == 0
    assert out.startswith("gpuward.yaml: written\n")
    text = (repository / "gpuward.yaml").read_text()
    listed = [line.split()[1] for line in text.splitlines() if line.startswith("  - ")]
    assert listed == profiles
    assert run(capsys, "check", "gpuward.yaml")[0] == 0
    assert run(capsys, "init")[0] == 2
    assert (repository / "gpuward.yaml").read_text() == text


def test_a_case_may_have_several_documents(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "cases").mkdir()
    (repository / "cases" / "app.yaml").write_text(f"{FIXABLE}---\n# more\n---\n{BAD}")
    status, out = run(capsys, "test", "--update", "cases")
    assert status == 0, out
    text = (repository / "cases" / "app.expected.yaml").read_text()
    assert "/items/1/spec/containers/0/env/0/value" in text
    assert "/items/0/spec/containers/0/resources" in text
    assert run(capsys, "test", "cases") == (0, "1 passed\n")
    (repository / "cases" / "app.yaml").write_text(f"{FIXABLE}---\n{GOOD}")
    status, out = run(capsys, "test", "cases")
    assert (status, "visible-devices-env" in out) == (1, True)


def test_cases_are_tested_with_policies_that_extend_files(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "gpuward.yaml").write_text(POLICY + "extends: [../org.yaml]\n")
    (repository / "case.yaml").write_text(BAD)
    assert run(capsys, "test", "--update", "case.yaml")[0] == 0
    assert "action: warn" in (repository / "case.expected.yaml").read_text()
