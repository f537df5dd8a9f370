"""Options of the linter in a policy, and rules for a moment's look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.test_nested_policies import levels
from tests.testkit.chart.rendering import program
from tests.testkit.git_repository import BAD, FIXABLE, GitRepository
from tests.testkit.lint_command import LintCommand

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
DOCKERFILE = "FROM ubuntu:24.04\nENV NVIDIA_VISIBLE_DEVICES=all\n"


@pytest.fixture
def repository(command: LintCommand) -> LintCommand:
    command.write("pod.yaml", BAD)
    command.write("vendor/pod.yaml", BAD)
    command.write("team/vendor/pod.yaml", BAD)
    return command


def at(command: LintCommand, folder: str) -> LintCommand:
    """The program in a folder of the repository."""
    inside = LintCommand.__new__(LintCommand)
    inside.folder, inside.path = command.folder / folder, ""
    return inside


@pytest.mark.parametrize("folder", [".", "team", "/"])
def test_what_a_policy_leaves_out_is_from_its_folder(repository: LintCommand, folder: str) -> None:
    repository.write("gpuward.yaml", POLICY + "lint: {exclude: [vendor]}\n")
    found = levels(at(repository, folder).json(str(repository.folder)))
    assert {Path(file).name for file in found} == {"pod.yaml"}
    assert len(found) == 1
    repository.write("gpuward.yaml", POLICY + "lint: {exclude: ['team/*']}\n")
    assert len(levels(at(repository, folder).json(str(repository.folder)))) == 2
    everything = at(repository, folder).json("--isolated", str(repository.folder))
    assert len(levels(everything)) == 3


def test_the_level_that_fails(repository: LintCommand) -> None:
    warn = "rules: {visible-devices-env: {action: warn}}\n"
    repository.write("gpuward.yaml", POLICY + warn + "lint: {failOn: warning}\n")
    assert repository("pod.yaml").status == 1
    assert repository("--fail-on", "error", "pod.yaml").status == 0
    assert at(repository, "team").json("../pod.yaml").status == 1


@pytest.mark.parametrize("folder", [".", "team"])
def test_the_baseline_of_a_policy(repository: LintCommand, folder: str) -> None:
    repository.write("gpuward.yaml", POLICY + "lint: {baseline: ci/known.yaml}\n")
    repository.write("ci/.keep", "")
    done = repository.run("baseline", "create", "--reason", "known", ".")
    assert done.status == 0
    assert (repository.folder / "ci" / "known.yaml").is_file()
    inside = at(repository, folder)
    assert inside.json(str(repository.folder)).status == 0
    assert len(levels(inside.json("--no-baseline", str(repository.folder)))) == 3
    assert at(repository, folder).run("baseline", "check", str(repository.folder)).status == 0
    repository.write("new.yaml", BAD.replace("name: x", "name: new"))
    assert inside.json(str(repository.folder)).status == 1


def test_other_files_and_nothing_to_evaluate(repository: LintCommand) -> None:
    repository.write("Dockerfile", DOCKERFILE)
    repository.write("empty/x.txt", "")
    repository.write("gpuward.yaml", POLICY + "lint: {also: [dockerfile], requireInput: true}\n")
    rules = {f["rule"] for f in repository.json(".").report["findings"]}
    assert "image-visible-devices" in rules
    assert repository("empty").status == 3


def test_charts_are_rendered_but_not_to_fix(repository: LintCommand, tmp_path: Path) -> None:
    tools = tmp_path / ".tools"
    tools.mkdir()
    (tools / "helm").symlink_to(program("helm4"))
    repository.path = f"{tools}:/usr/bin"
    repository.write("chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n")
    repository.write("chart/templates/pod.yaml", "{{ if true }}\n" + BAD + "{{ end }}\n")
    repository.write("gpuward.yaml", POLICY + "lint: {render: true}\n")
    assert repository.json("chart").report["summary"]["renderings"] == 1
    without = repository.json("--no-render", "chart")
    assert without.report["summary"]["renderings"] == 0
    isolated = repository.json("--isolated", "chart").report
    assert isolated["summary"]["renderings"] == 0
    repository.write("fixable.yaml", FIXABLE)
    assert "fixed" in repository.run("fix", ".").out


def test_only_the_outermost_policy_has_options_of_the_linter(repository: LintCommand) -> None:
    repository.write("team/gpuward.yaml", POLICY + "lint: {exclude: ['*']}\n")
    assert "team/vendor/pod.yaml" not in levels(repository.json("team"))
    repository.write("gpuward.yaml", POLICY)
    done = repository(".")
    assert done.status == 2
    assert "team/gpuward.yaml: lint: what is about a whole run belongs in" in done.errors
    repository.write("team/gpuward.yaml", POLICY + "extends: [../gpuward.yaml]\n")
    repository.write("gpuward.yaml", POLICY + "lint: {exclude: [vendor]}\n")
    assert set(levels(repository.json("."))) == {"pod.yaml"}


def test_a_policy_that_is_named_has_options_too(repository: LintCommand) -> None:
    repository.write("ci/strict.yaml", POLICY + "lint: {exclude: [vendor]}\n")
    done = repository.json("--policy", "ci/strict.yaml", ".")
    assert set(levels(done)) == {"pod.yaml"}


def test_hooks_leave_out_what_the_policy_does(tmp_path: Path, git: str) -> None:
    assert git
    made = GitRepository(tmp_path / "repository")
    made.stage("gpuward.yaml", POLICY + "lint: {exclude: [vendor]}\n")
    made.stage("team/vendor/pod.yaml", BAD)
    for folder in (".", "team"):
        assert made.gpuward("lint", "--staged", folder=folder).returncode == 0
    made.stage("team/pod.yaml", BAD)
    assert made.gpuward("lint", "--staged").returncode == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{exclud: [a]}", 'did you mean "exclude"?'),
        ("{failOn: errors}", 'did you mean "error"?'),
        ("{also: [dockerfiles]}", 'did you mean "dockerfile"?'),
    ],
)
def test_mistakes_in_options(repository: LintCommand, text: str, message: str) -> None:
    repository.write("gpuward.yaml", POLICY + f"lint: {text}\n")
    done = repository(".")
    assert (done.status, message in done.errors) == (2, True), done.errors


BOTH = f"{BAD}---\n{FIXABLE}"


def test_rules_for_a_moments_look(command: LintCommand) -> None:
    command.write("pod.yaml", BOTH)
    every = set(command.json("--notes", ".").found)
    assert {"visible-devices-env", "request-only"} <= every
    assert set(command.json("--select", "request-only", ".").found) == {"request-only"}
    assert "request-only" not in command.json("--ignore", "request-only", ".").found
    family = set(command.json("--notes", "--select", "bypass,request-only", ".").found)
    assert "visible-devices-env" in family
    assert "request-only" in family
    chosen = ("--select", "bypass", "--select", "requests", "--ignore", "request-only")
    assert set(command.json("--notes", *chosen, ".").found) == family - {"request-only"}
    done = command("--select", "request-onyl", ".")
    assert (done.status, 'did you mean "request-only"?' in done.errors) == (2, True)


def test_a_look_at_some_rules_says_nothing_of_the_others(command: LintCommand) -> None:
    command.write("Dockerfile", DOCKERFILE)
    text = BOTH.replace("all}]", "all}] # gpuward: ignore[visible-devices-env] reviewed")
    command.write("pod.yaml", text)
    command.write(
        "gpuward.yaml",
        POLICY + "exceptions: [{rules: [privileged-gpu], match: {namespace: x}, reason: r}]\n",
    )
    command.run("baseline", "create", "--reason", "known", "pod.yaml")
    look = ("--notes", "--also=dockerfile", "--baseline", "gpuward-baseline.yaml")
    done = command(*look, "--select", "zero-gpu", ".")
    assert done.status == 0
    assert not any(word in done.out for word in ("remove", "accepted nothing", "Dockerfile:"))


def test_fixes_of_chosen_rules(command: LintCommand) -> None:
    command.write("pod.yaml", FIXABLE)
    command.run("fix", "--ignore", "request-only", ".")
    assert "limits" not in (command.folder / "pod.yaml").read_text()
    command.run("fix", "--select", "request-only", ".")
    assert "limits" in (command.folder / "pod.yaml").read_text()
