"""Tests of the pre-commit hook, installed from a local git repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.paths import ROOT

pytestmark = pytest.mark.slow

POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
    "    - {name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: %s}]}\n"
)


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "PRE_COMMIT_HOME": str(folder.parent / "cache"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com",
    }
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def hook(tmp_path: Path, git: str) -> Path:
    """A git repository with this project as it is in the work tree."""
    listed = run(ROOT, git, "ls-files", "--cached", "--others", "--exclude-standard")
    copy = tmp_path / "gpuward"
    for name in listed.stdout.splitlines():
        source = ROOT / name
        if source.is_file() and not name.startswith("tests/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy / name)
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "all")):
        assert run(copy, git, *command).returncode == 0
    return copy


def test_the_hook_refuses_a_commit_with_an_error(hook: Path, git: str, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    revision = run(hook, git, "rev-parse", "HEAD").stdout.strip()
    (user / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hook}\n    rev: {revision}\n    hooks: [{{id: gpuward-lint}}]\n"
    )
    run(user, git, "init", "-q")
    for value, accepted in (("all", False), ("void", True)):
        (user / "pod.yaml").write_text(POD % value)
        run(user, git, "add", ".")
        done = run(user, sys.executable, "-m", "pre_commit", "run", "--all-files")
        assert (done.returncode == 0) is accepted, done.stdout + done.stderr
        assert ("error[visible-devices-env]" in done.stdout) is not accepted
