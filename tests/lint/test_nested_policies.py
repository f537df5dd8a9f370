"""Several policies in one repository: each file has the nearest one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.testkit.git_repository import BAD, GitRepository
from tests.testkit.lint_command import LintCommand, Outcome

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
WARN = POLICY + "rules: {visible-devices-env: {action: warn}}\n"
OFF = POLICY + 'rules: {visible-devices-env: {action: "off"}}\n'
FIRM = POLICY + "rules: {visible-devices-env: {suppressible: false}}\n"
EXCEPTION = POLICY + (
    "exceptions:\n  - {rules: [visible-devices-env], match: {namespace: default}, reason: a test}\n"
)


@pytest.fixture
def teams(command: LintCommand) -> LintCommand:
    """A repository with a policy, and a folder of a team that has another one."""
    command.write("pod.yaml", BAD)
    command.write("team/deploy/pod.yaml", BAD)
    command.write("team/gpuward.yaml", WARN)
    command.write("other/pod.yaml", BAD)
    return command


def levels(done: Outcome, folder: str = "") -> dict[str, str]:
    """The level of the finding in each file, by its path in the repository."""
    found = done.report["findings"]
    return {
        os.path.normpath(os.path.join(folder, f["file"])): f["level"]
        for f in found
        if f["rule"] == "visible-devices-env"
    }


EXPECTED = {"pod.yaml": "error", "other/pod.yaml": "error", "team/deploy/pod.yaml": "warning"}


def test_the_policy_nearest_to_each_file_counts(teams: LintCommand) -> None:
    done = teams.json(".")
    assert levels(done) == EXPECTED
    assert done.report["policy"] == "team/gpuward.yaml"
    teams.write("gpuward.yaml", OFF)
    assert levels(teams.json(".")) == {"team/deploy/pod.yaml": "warning"}
    assert teams.json(".").report["policy"] == "gpuward.yaml, team/gpuward.yaml"


@pytest.mark.parametrize("folder", [".", "team", "team/deploy", "other", ".."])
def test_a_verdict_does_not_depend_on_the_working_folder(teams: LintCommand, folder: str) -> None:
    inside = LintCommand.__new__(LintCommand)
    inside.folder, inside.path = teams.folder / folder, ""
    done = inside.json(os.path.relpath(teams.folder, inside.folder))
    found = levels(done, os.path.normpath(inside.folder))
    assert {os.path.relpath(file, teams.folder): level for file, level in found.items()} == EXPECTED


def test_a_policy_is_found_for_the_name_of_standard_input(teams: LintCommand) -> None:
    done = teams("-o", "concise", "--stdin-filename", "team/deploy/new.yaml", "-", stdin=BAD)
    assert "warning visible-devices-env" in done.out
    assert "error visible-devices-env" in teams("-o", "concise", "-", stdin=BAD).out


def test_a_policy_that_is_named_counts_for_all_files(teams: LintCommand) -> None:
    assert set(levels(teams.json("--isolated", ".")).values()) == {"error"}
    teams.write("strict.yaml", WARN)
    assert set(levels(teams.json("--policy", "strict.yaml", ".")).values()) == {"warning"}


def test_without_a_repository_a_policy_above_the_working_folder_is_not_read(
    tmp_path: Path, as_program: LintCommand
) -> None:
    (tmp_path / ".git").rmdir()
    as_program.write("gpuward.yaml", OFF)
    as_program.write("work/deploy/pod.yaml", BAD)
    assert as_program.json("work/deploy").status == 0
    inside = LintCommand.__new__(LintCommand)
    inside.folder, inside.path = tmp_path / "work", ""
    assert inside.json("deploy").status == 1


@pytest.mark.parametrize("inner", [OFF, WARN, POLICY + 'catalog: "0.1"\n'])
def test_what_nobody_may_suppress_stays_in_the_folders_of_teams(
    teams: LintCommand, inner: str
) -> None:
    teams.write("gpuward.yaml", FIRM)
    teams.write("team/gpuward.yaml", inner)
    comment = "value: all # gpuward: ignore[visible-devices-env] it is ours"
    teams.write(
        "team/deploy/pod.yaml", BAD.replace("value: all}]", f"value: all}}] {comment[11:]}")
    )
    assert levels(teams.json("."))["team/deploy/pod.yaml"] == "error"


def test_a_team_may_be_stricter(teams: LintCommand) -> None:
    teams.write("gpuward.yaml", WARN.replace("warn}", "warn, suppressible: false}"))
    teams.write("team/gpuward.yaml", POLICY + "rules: {visible-devices-env: {action: deny}}\n")
    assert levels(teams.json(".")) == {
        "pod.yaml": "warning",
        "other/pod.yaml": "warning",
        "team/deploy/pod.yaml": "error",
    }


def test_an_exception_to_what_nobody_may_suppress_is_refused(teams: LintCommand) -> None:
    teams.write("gpuward.yaml", FIRM)
    teams.write("team/gpuward.yaml", EXCEPTION)
    done = teams(".")
    assert done.status == 2
    assert (
        "team/gpuward.yaml: an exception to visible-devices-env, which gpuward.yaml" in done.errors
    )
    assert teams("other").status == 1
    teams.write("gpuward.yaml", POLICY)
    assert "team/deploy/pod.yaml" not in levels(teams.json("-n", "default", "."))


def test_a_policy_that_cannot_be_used_is_found_before_anything_is_written(
    teams: LintCommand,
) -> None:
    pod = teams.write("a.yaml", BAD).read_text()
    teams.write("team/gpuward.yaml", POLICY + "rulez: {}\n")
    done = teams.run("fix", "--unsafe-fixes", ".")
    assert done.status == 2
    assert "team/gpuward.yaml:3:1: unknown key 'rulez'" in done.errors
    assert (teams.folder / "a.yaml").read_text() == pod


def test_an_exception_of_another_policy_is_named_once(teams: LintCommand) -> None:
    teams.write("gpuward.yaml", EXCEPTION.replace("default", "elsewhere"))
    teams.write("team/gpuward.yaml", EXCEPTION.replace("default", "elsewhere"))
    assert teams("--notes", ".").out.count("accepted nothing in these files") == 1


def test_staged_policies_count_for_staged_files(tmp_path: Path, git: str) -> None:
    assert git
    repository = GitRepository(tmp_path / "repository")
    repository.stage("team/gpuward.yaml", WARN)
    repository.stage("team/pod.yaml", BAD)
    repository.write("team/gpuward.yaml", POLICY)
    for folder in (".", "team"):
        done = repository.gpuward("lint", "--staged", "-o", "concise", folder=folder)
        assert "warning visible-devices-env" in done.stdout
        assert done.returncode == 0


def test_baselines_ask_the_policy_of_each_file(teams: LintCommand) -> None:
    firm = POLICY + "rules: {visible-devices-env: {action: warn, suppressible: false}}\n"
    teams.write("team/gpuward.yaml", firm)
    done = teams.run("baseline", "create", "--reason", "known", ".")
    assert "team/deploy/pod.yaml" in done.out
    assert "the policy lets nobody suppress it" in done.out
    text = (teams.folder / "gpuward-baseline.yaml").read_text()
    assert "other/pod.yaml" in text
    assert "team/deploy/pod.yaml" not in text


def test_many_files_have_their_policies_in_every_process(teams: LintCommand) -> None:
    for n in range(150):
        teams.write(f"{'team' if n % 2 else 'other'}/many/{n}.yaml", BAD.replace("x}", f"x{n}}}"))
    one, two = (levels(teams.json("--jobs", jobs, ".")) for jobs in ("1", "2"))
    assert one == two
    assert set(one.values()) == {"error", "warning"}
