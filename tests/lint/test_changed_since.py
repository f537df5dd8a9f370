"""Tests of `--changed-since`: which files are linted, and that git runs nothing of theirs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lint import cli
from sources.git.changes import changed_since
from sources.git.command import GitError
from sources.sources import UsageError

IDENTITY = {
    f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


def git(*arguments: str) -> None:
    environment = {**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(("git", *arguments), check=True, capture_output=True, env=environment)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch that left `main` one commit ago; `main` has gone on since."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    for name in ("same.yaml", "changed.yaml", "staged.yaml", "gone.yaml", "main.yaml"):
        Path(name).write_text("a: 1\n")
    Path(".gitignore").write_text("ignored.yaml\n")
    commit("begin")
    git("branch", "work")
    Path("main.yaml").write_text("a: 2\n")
    commit("on main")
    git("checkout", "-q", "work")
    Path("sub").mkdir()
    Path("sub/ä b\n.yaml").write_text("a: 1\n")
    Path("gone.yaml").unlink()
    commit("on the branch")
    Path("changed.yaml").write_text("a: 2\n")
    Path("staged.yaml").write_text("a: 2\n")
    git("add", "staged.yaml")
    for name in ("new.yaml", "ignored.yaml"):
        Path(name).write_text("a: 1\n")
    return tmp_path


def commit(message: str) -> None:
    git("add", "-A")
    git("commit", "-qm", message)


CHANGED = {"changed.yaml", "staged.yaml", "sub/ä b\n.yaml", "new.yaml"}


def test_git_may_warn_about_every_file(repository: Path) -> None:
    """More than a pipe takes, before git lists anything: it warns of each changed line break."""
    names = {f"{number:0200}.yaml" for number in range(400)}
    for name in names:
        Path(name).write_text("a: 1\n")
    Path(".gitattributes").write_text("* text=auto\n")
    commit("many")
    for name in names:
        Path(name).write_bytes(b"a: 2\r\n")
    is_changed = changed_since("HEAD", ["."]).is_changed
    assert {file.name for file in repository.iterdir() if is_changed(file.name)} == names


@pytest.mark.parametrize("folder", [".", "sub"])
def test_what_the_branch_changed_and_what_is_not_committed(
    repository: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(folder)
    is_changed = changed_since("main", ["."]).is_changed
    names = {name for name in repository.rglob("*.yaml") if is_changed(os.path.relpath(name))}
    assert {str(name.relative_to(repository)) for name in names} == CHANGED


def test_the_linter_reads_only_these(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("same.yaml", "new.yaml"):
        (repository / name).write_text("apiVersion: v1\nkind: [\n")
    commit("pods")
    (repository / "new.yaml").write_text("apiVersion: v1\nkind: {\n")
    assert cli.main(["--changed-since", "HEAD", "--output", "concise"]) == 3
    assert capsys.readouterr().out.startswith("new.yaml:3:1: not evaluated")
    assert cli.main(["--changed-since", "HEAD", "--quiet", "same.yaml"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main(["--changed-since", "HEAD", "--require-input", "same.yaml"]) == 3


@pytest.mark.parametrize(
    ("revision", "path", "message"),
    [
        ("no-such-branch", ".", "--changed-since no-such-branch: there is no such commit"),
        ("--output=x", ".", "there is no such commit"),
        ("", ".", "there is no such commit"),
        ("main", "..", "is outside of the repository"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_wrong_usage_is_explained(revision: str, path: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changed_since(revision, [path])


def test_without_a_repository_or_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="not a git repository"):
        changed_since("main", ["."])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="git cannot be run"):
        changed_since("main", ["."])


@pytest.mark.usefixtures("repository")
def test_a_history_without_a_common_ancestor_is_explained() -> None:
    git("checkout", "-q", "--orphan", "other")
    commit("unrelated")
    with pytest.raises(UsageError, match="no common ancestor"):
        changed_since("main", ["."])


def test_nothing_of_a_hostile_repository_runs(repository: Path, tmp_path: Path) -> None:
    traces = tmp_path.parent / f"{tmp_path.name}-traces"
    traces.mkdir()
    for key in (
        "core.fsmonitor",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "filter.evil.process",
        "filter.evil.smudge",
        "core.pager",
    ):
        git("config", key, f"touch {traces}/{key}; cat")
    git("config", "filter.evil.clean", f"touch {traces}/clean; cat")
    git("config", "filter.evil.required", "true")
    (repository / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    hooks = repository / ".git/hooks"
    for hook in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {traces}/{hook}\n")
        (hooks / hook).chmod(0o755)
    os.utime(repository / "same.yaml", (1, 1))  # git must compare its content again
    is_changed = changed_since("main", ["."]).is_changed
    assert {name for name in CHANGED if is_changed(name)} == CHANGED
    assert not is_changed("same.yaml")
    assert os.listdir(traces) == []
    # The same question without our settings does run some of it: the trap works.
    (repository / "same.yaml").touch()
    subprocess.run(("git", "diff", "--name-only", "main"), capture_output=True, check=False)
    assert os.listdir(traces)


@pytest.mark.usefixtures("repository")
def test_a_filter_that_cannot_be_turned_off_is_an_error() -> None:
    git("config", "filter.a=b.clean", "cat")
    with pytest.raises(GitError, match=r"the filter 'filter\.a=b' of the configuration cannot"):
        changed_since("main", ["."])
