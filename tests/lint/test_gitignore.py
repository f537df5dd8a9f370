"""Tests of what Git ignores: the linter leaves it out, and no fix writes it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from sources.git.command import BOUNDS, GitError
from sources.git.trees import ignored_paths
from sources.paths import Exclusion, inputs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: a
      image: x
      env:
        - {name: NVIDIA_VISIBLE_DEVICES, value: all}
      resources:
        limits: {nvidia.com/gpu: 1}
"""
FILES = ("deploy/a.yaml", "node_modules/x/a.yaml", "out/a.yaml", "a.tmp.yaml", "kept.tmp.yaml")


def git(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(
        ("git", *arguments), check=True, capture_output=True, env=environment, cwd=folder
    )


@pytest.fixture
def repository(command: LintCommand) -> LintCommand:
    """A repository that ignores two folders and one kind of files, of which one is tracked."""
    (command.folder / ".git").rmdir()
    command.path = os.environ["PATH"]
    git(command.folder, "init", "-q")
    command.write(".gitignore", "node_modules/\n/out\n*.tmp.yaml\n")
    for name in FILES:
        command.write(name, POD)
    git(command.folder, "add", "-f", "kept.tmp.yaml")
    return command


def linted(command: LintCommand, *arguments: str) -> set[str]:
    return {found["file"] for found in command.json(*arguments).report["findings"]}


NOT_IGNORED = {"deploy/a.yaml", "kept.tmp.yaml"}


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["."], NOT_IGNORED),
        (["--no-gitignore", "."], set(FILES)),
        (["**/*.yaml"], NOT_IGNORED),
        (["*/"], {"deploy/a.yaml"}),
        (["--no-gitignore", "**/*.yaml"], set(FILES)),
        (["--exclude", "deploy", "."], {"kept.tmp.yaml"}),
        # What the user names is read.
        (["out"], {"out/a.yaml"}),
        (["node_modules/x"], {"node_modules/x/a.yaml"}),
        (["a.tmp.yaml"], {"a.tmp.yaml"}),
        (["deploy", "out/a.yaml"], {"deploy/a.yaml", "out/a.yaml"}),
    ],
)
def test_what_git_ignores_is_left_out(
    repository: LintCommand, arguments: list[str], files: set[str]
) -> None:
    assert linted(repository, *arguments) == files


def test_no_fix_writes_what_git_ignores(repository: LintCommand) -> None:
    repository.run("fix", ".")
    changed = {name for name in FILES if (repository.folder / name).read_text() != POD}
    assert changed == NOT_IGNORED
    refused = repository.run("fix", "--no-gitignore", ".")
    assert (refused.status, "--no-gitignore" in refused.errors) == (2, True)
    repository.run("fix", "out/a.yaml")
    assert (repository.folder / "out/a.yaml").read_text() != POD


def test_files_that_are_no_manifests_are_left_out_as_well(repository: LintCommand) -> None:
    for folder in ("deploy", "out"):
        repository.write(f"{folder}/run.sh", "docker run --gpus all x\n")
    found = linted(repository, "--also", "shell", ".")
    assert found == NOT_IGNORED | {"deploy/run.sh"}


def test_a_run_without_input_says_what_was_left_out(repository: LintCommand) -> None:
    repository.write("sub/.gitignore", "*\n")
    repository.write("sub/a.yaml", POD)
    git(repository.folder, "rm", "-qf", "kept.tmp.yaml")
    (repository.folder / "deploy/a.yaml").unlink()
    done = repository(".")
    assert (done.status, "--no-gitignore lints it" in done.errors) == (0, True)


def test_without_git_everything_is_read_and_a_note_says_so(repository: LintCommand) -> None:
    repository.path = ""
    assert linted(repository, ".") == set(FILES)
    assert "cannot say what Git ignores" in repository(".").out


def test_a_hook_of_another_repository_does_not_choose_what_is_ignored(
    repository: LintCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere/.git")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    found = {given.name for given in inputs([str(repository.folder)], Exclusion((), ignored_paths))}
    assert found == {str(repository.folder / name) for name in NOT_IGNORED}


def test_git_does_not_wait_for_ever(
    repository: LintCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named pipe that no program writes: git opens it, and waits."""
    ignore = repository.folder / ".gitignore"
    ignore.unlink()
    os.mkfifo(ignore)
    monkeypatch.setattr(BOUNDS, "seconds", 0.2)
    with pytest.raises(GitError, match=r"ended by signal 9, as after 0\.2 seconds"):
        ignored_paths(str(repository.folder))
