"""The hooks for pre-commit and prek, with the revision that docs/git-hooks.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testkit.git_repository import BAD, GOOD
from tests.testkit.paths import DOCS
from tests.testkit.release.new_user import NewUser
from tests.testkit.release.repository import VERSION, git

PAGE = (DOCS / "git-hooks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", ["pre-commit", "prek"])
def test_the_configuration_of_the_page_keeps_a_bypass_out(user: NewUser, program: str) -> None:
    (configuration,) = re.findall(
        r"```yaml\n# \.pre-commit-config\.yaml\n(.*?)```", PAGE, re.DOTALL
    )
    assert f"rev: v{VERSION}\n" in configuration
    user.write(".pre-commit-config.yaml", configuration)
    user.succeeds(f"git init --quiet -b main && {program} install")
    user.write("deploy/pod.yaml", BAD)
    user.succeeds("git add .")
    done = user.run("git commit --quiet -m bad")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "visible-devices-env" in done.stdout + done.stderr
    user.write("deploy/pod.yaml", GOOD)
    user.succeeds("git add . && git commit --quiet -m good")


def test_the_commit_of_the_tag_is_what_the_page_about_ci_tells_to_look_up(
    user: NewUser, repository: Path
) -> None:
    (command,) = re.findall(r"`(git ls-remote [^`]+)`", (DOCS / "ci.md").read_text())
    commit, name = user.succeeds(command).split()
    assert name == f"refs/tags/v{VERSION}"
    assert commit == git(repository, "rev-parse", name)
