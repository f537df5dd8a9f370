"""The pipelines of docs/ci.md, with the installation, at the tag of the release."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.testkit.git_repository import BAD, GOOD
from tests.testkit.gitlab_component import COMPONENT, job
from tests.testkit.paths import DOCS, ROOT
from tests.testkit.release.new_user import NewUser
from tests.testkit.release.programs import ACT, program
from tests.testkit.release.repository import VERSION, checkout, git
from tests.testkit.release.servers import PackageIndex

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (DOCS / "ci.md").read_text("utf-8"), re.DOTALL)
# In place of actions/setup-python, which is a program of its own and downloads Python.
SETUP_PYTHON = """\
name: setup-python
inputs: {python-version: {required: false}, update-environment: {required: false}}
outputs: {python-path: {value: "${{ steps.find.outputs.path }}"}}
runs:
  using: composite
  steps:
    - {id: find, shell: bash, run: 'echo "path=$TEST_PYTHON" >> "$GITHUB_OUTPUT"'}
"""


def block(language: str, part: str) -> str:
    """The only block of the page in this language that contains `part`."""
    (found,) = (text for name, text in BLOCKS if name == language and part in text)
    return str(found)


@pytest.mark.parametrize(("pod", "status"), [(BAD, 1), (GOOD, 0)], ids=["bad", "good"])
def test_a_runner_for_workflows_runs_the_example_with_the_action(
    repository: Path, index: PackageIndex, tmp_path: Path, pod: str, status: int
) -> None:
    action, work = tmp_path / "action", tmp_path / "repository"
    checkout(repository, f"v{VERSION}", action)
    commit = git(action, "rev-parse", "HEAD")
    workflow = block("yaml", "            --require-input\n").replace("@COMMIT", f"@{commit}")
    (work / ".github" / "workflows").mkdir(parents=True)
    (work / ".github" / "workflows" / "gpuward.yml").write_text(workflow)
    for folder in ("deploy", "charts/serving/examples"):
        (work / folder).mkdir(parents=True)
        (work / folder / "pod.yaml").write_text(pod)
    git(work, "init", "--quiet", "-b", "main")
    git(work, "add", ".")
    git(work, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "x")
    setup = tmp_path / "setup-python"
    setup.mkdir()
    (setup / "action.yml").write_text(SETUP_PYTHON)
    (pinned,) = re.findall(r"uses: (actions/setup-python@\S+)", (action / "action.yml").read_text())
    done = subprocess.run(
        [
            program(ACT),
            "pull_request",
            "--platform=ubuntu-24.04=-self-hosted",
            f"--local-repository=gpuward/gpuward@{commit}={action}",
            f"--local-repository={pinned}={setup}",
            f"--env=PIP_INDEX_URL={index.url}",
            f"--env=PIP_CONFIG_FILE={os.devnull}",
            f"--env=TEST_PYTHON={sys.executable}",
        ],
        cwd=work,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("title=gpuward%3A visible-devices-env,file=deploy/pod.yaml" in done.stdout) == bool(
        status
    )


def test_the_job_for_gitlab_installs_and_reports(user: NewUser) -> None:
    (included,) = yaml.safe_load(block("yaml", "  - remote: "))["include"]
    made = job(included["inputs"])
    user.environment |= made["variables"]
    for folder in included["inputs"]["paths"].split():
        user.write(f"{folder}/pod.yaml", BAD)
    user.succeeds("python -m venv .venv")
    script = [". .venv/bin/activate", *made["before_script"], *made["script"]]
    done = user.run("set -eo pipefail\n" + "\n".join(script))
    assert done.returncode == 1, done.stderr
    for report in made["artifacts"]["reports"].values():
        assert "visible-devices-env" in (user.folder / report).read_text()
    # The address in the page leads to this file at the tag.
    assert included["remote"].endswith(f"/v{VERSION}/{COMPONENT.relative_to(ROOT)}")


def test_the_stage_for_jenkins_installs_and_reports(user: NewUser) -> None:
    user.write("pod.yaml", BAD)
    install, lint = re.findall(r"sh '([^']+)'", block("groovy", "stage"))
    user.succeeds(install)
    assert user.run(lint).returncode == 1
    assert "visible-devices-env" in (user.folder / "gpuward.junit.xml").read_text()
