"""Folders with a dot are linted, as kubectl applies them; those of tools are named and skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.git_repository import GitRepository
from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - {name: NVIDIA_VISIBLE_DEVICES, value: all}
"""
READ = {"deploy/.prod/a.yaml", ".github/kind.yaml", ".argocd/b.yaml"}
SKIPPED = {".venv", "deploy/.terraform", ".cache", ".kube"}
FILES = (
    *READ,
    *(".venv/lib/x.yaml", "deploy/.terraform/x.yaml", ".cache/a/x.yaml", ".kube/x.yaml"),
)
WHY = "a folder of a tool: name it to lint it"


def _read_and_skipped(report: Any) -> tuple[set[str], dict[str, str]]:
    skipped = {each["file"]: each["why"] for each in report["skipped"]}
    return {finding["file"] for finding in report["findings"]}, skipped


@pytest.fixture
def folder(command: LintCommand) -> LintCommand:
    for name in FILES:
        command.write(name, POD)
    return command


def test_folders_with_a_dot_are_read_and_those_of_tools_are_named(folder: LintCommand) -> None:
    read, skipped = _read_and_skipped(folder.json(".").report)
    assert read == READ
    assert skipped == dict.fromkeys(SKIPPED, WHY)
    assert f"skipped: .venv: {WHY}" in folder(".").out


def test_a_tools_folder_is_read_if_it_is_named_and_not_named_if_it_is_excluded(
    folder: LintCommand,
) -> None:
    read, skipped = _read_and_skipped(folder.json(".venv").report)
    assert (read, skipped) == ({".venv/lib/x.yaml"}, {})
    _, skipped = _read_and_skipped(folder.json("--exclude", ".venv", ".").report)
    assert skipped.keys() == SKIPPED - {".venv"}


def test_version_control_is_neither_read_nor_named(command: LintCommand) -> None:
    command.write(".git/x.yaml", POD)
    command.write(".svn/x.yaml", POD)
    assert _read_and_skipped(command.json(".").report) == (set(), {})


def test_other_files_are_found_in_the_same_folders(folder: LintCommand) -> None:
    for name in ("deploy/.prod", ".venv"):
        folder.write(f"{name}/run.sh", "docker run --gpus all x\n")
    read, _ = _read_and_skipped(folder.json("--also", "shell", ".").report)
    assert read == READ | {"deploy/.prod/run.sh"}


@pytest.fixture
def repository(tmp_path: Path, git: str) -> GitRepository:
    assert git
    made = GitRepository(tmp_path / "repository")
    made.commit("old.txt", "")
    return made


def test_what_is_staged_and_what_a_branch_changes_are_read_alike(
    repository: GitRepository,
) -> None:
    for name in FILES:
        repository.stage(name, POD)
    for arguments in (["--staged"], ["--changed-since", "HEAD"], ["."]):
        done = repository.gpuward("lint", "--output", "json", *arguments)
        read, skipped = _read_and_skipped(json.loads(done.stdout))
        assert (read, skipped) == (READ, dict.fromkeys(SKIPPED, WHY)), arguments
    done = repository.gpuward("lint", "--output", "json", "--staged", ".venv")
    assert _read_and_skipped(json.loads(done.stdout)) == ({".venv/lib/x.yaml"}, {})
    repository.stage(".gitignore", ".venv/\n.cache/\n")
    done = repository.gpuward("lint", "--output", "json", ".")
    assert _read_and_skipped(json.loads(done.stdout))[0] == READ
