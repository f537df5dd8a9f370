"""The hooks of `.pre-commit-hooks.yaml`, run by pre-commit and by prek in a real repository."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.testkit.git_repository import BAD, FIXABLE, GOOD, GitRepository
from tests.testkit.paths import ROOT

MANIFEST = ".pre-commit-hooks.yaml"
BIN = Path(sys.executable).parent
TOOLS = {
    "pre-commit": (sys.executable, "-m", "pre_commit", "run"),
    "prek": (str(BIN / "prek"), "run"),
}


def user_of(folder: Path, hooks: GitRepository) -> GitRepository:
    """A repository whose configuration takes all hooks from the repository `hooks`."""
    user = GitRepository(folder / "user")
    user.environment |= {
        "PRE_COMMIT_HOME": str(folder / "cache"),
        "PREK_HOME": str(folder / "cache"),
        "PATH": f"{BIN}:{user.environment['PATH']}",
    }
    ids = "".join(f"      - id: gpuward-{name}\n" for name in ("lint", "fix", "project"))
    user.stage(
        ".pre-commit-config.yaml",
        f"repos:\n  - repo: {hooks.folder}\n    rev: {hooks.git('rev-parse', 'HEAD')}\n"
        f"    hooks:\n{ids}",
    )
    return user


@pytest.fixture
def installed(tmp_path: Path, git: str) -> GitRepository:
    """A user of the hooks as they are, but for the program, which is installed already."""
    assert git
    hooks = GitRepository(tmp_path / "hooks")
    hooks.commit(
        MANIFEST, (ROOT / MANIFEST).read_text().replace("language: python", "language: system")
    )
    return user_of(tmp_path, hooks)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_each_hook_does_its_work(installed: GitRepository, tool: str) -> None:
    user, command = installed, TOOLS[tool]
    user.stage("not-kubernetes.yaml", "a: 1\n")
    user.stage("good.json", '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}\n')
    user.stage("sub folder/bad.yaml", BAD)
    user.write("untracked.yaml", BAD)
    done = user.run(*command, "gpuward-lint")
    assert done.returncode == 1
    assert "sub folder/bad.yaml:7" in done.stdout
    assert "untracked" not in done.stdout
    assert "not evaluated" not in done.stdout
    # What the project hook finds is in no changed file.
    user.git("commit", "-qm", "x", "--no-verify")
    (user.folder / "untracked.yaml").unlink()
    user.stage("fixable.yaml", FIXABLE)
    assert user.run(*command, "gpuward-fix").returncode == 1
    assert "limits" in (user.folder / "fixable.yaml").read_text()
    user.git("add", "fixable.yaml")
    user.stage("Dockerfile", "FROM a\nENV NVIDIA_VISIBLE_DEVICES=all\n")
    done = user.run(*command, "gpuward-project")
    assert done.returncode == 1
    assert "sub folder/bad.yaml:7" in done.stdout
    assert "Dockerfile:2:5" in done.stdout


@pytest.mark.slow
def test_the_hooks_install_themselves(tmp_path: Path, git: str) -> None:
    assert git
    listed = GitRepository(ROOT).git("ls-files", "--cached", "--others", "--exclude-standard")
    hooks = GitRepository(tmp_path / "gpuward")
    for name in listed.splitlines():
        source = ROOT / name
        if source.is_file() and not name.startswith("tests/"):
            (hooks.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, hooks.folder / name)
    hooks.git("add", ".")
    hooks.git("commit", "-qm", "all")
    user = user_of(tmp_path, hooks)
    del user.environment["PYTHONPATH"]
    for manifest, status in ((BAD, 1), (GOOD, 0)):
        user.stage("pod.yaml", manifest)
        done = user.run(*TOOLS["pre-commit"], "gpuward-lint")
        assert done.returncode == status, done.stdout + done.stderr
        assert ("error[visible-devices-env]" in done.stdout) is bool(status)
