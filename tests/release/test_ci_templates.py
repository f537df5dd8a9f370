"""The action for GitHub, the component for GitLab, and the pipelines in docs/ci.md, as written.

The services themselves cannot run here: the real linters of their formats read the files, and bash
runs their commands. Only the installation is left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward import __version__
from tests.testkit.git_repository import BAD, GOOD
from tests.testkit.gitlab_component import documents, job
from tests.testkit.paths import ROOT

ACTION = ROOT / "action.yml"
BIN = Path(sys.executable).parent
DOCUMENT = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", DOCUMENT, re.DOTALL)


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def succeeds(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def bash(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the runners do: bash that stops at the first failure."""
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    """A checked out repository with a bad pod."""
    (tmp_path / "deploy folder").mkdir()
    (tmp_path / "deploy folder" / "pod.yaml").write_text(BAD)
    return tmp_path


def test_the_real_linters_accept_them(tmp_path: Path) -> None:
    check = BIN / "check-jsonschema"
    succeeds(check, "--builtin-schema", "vendor.github-actions", ACTION)
    files: dict[str, list[Path]] = {"github-workflows": [], "gitlab-ci": []}
    # The tool reads no files of several documents.
    for number, document in enumerate((*documents(), {"gpuward": job({})})):
        file = tmp_path / f"component-{number}.yml"
        file.write_text(yaml.safe_dump(document))
        files["gitlab-ci"].append(file)
    for number, (language, text) in enumerate(BLOCKS):
        if language == "yaml":
            file = tmp_path / f"{number}.yml"
            file.write_text(text)
            files["github-workflows" if "\njobs:" in text else "gitlab-ci"].append(file)
    for kind, found in files.items():
        assert len(found) > 1
        succeeds(check, "--builtin-schema", f"vendor.{kind}", *found)
    zizmor = (BIN / "zizmor", "--offline", "--no-progress", "--strict-collection")
    succeeds(*zizmor, ACTION)
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    for file in files["github-workflows"]:
        text = re.sub(r"@COMMIT\b", "@" + "0" * 40, file.read_text())
        (workflows / file.name).write_text(text)
    succeeds(*zizmor, workflows)


def test_the_action_runs_a_pinned_python_and_pinned_packages() -> None:
    steps = load(ACTION)["runs"]["steps"]
    workflows = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert steps[0]["uses"] in workflows
    assert "--require-hashes" in steps[1]["run"]
    # What users write reaches the script as variables, never as text of the script.
    assert not any("${{" in step.get("run", "") for step in steps)


def run_action(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The last step of the action, with these inputs, where its environment is ours."""
    action = load(ACTION)
    values = {name: entry["default"] for name, entry in action["inputs"].items()} | inputs
    temporary = folder.parent / f"{folder.name}-runner"
    (temporary / "gpuward" / "bin").mkdir(parents=True, exist_ok=True)
    python = temporary / "gpuward" / "bin" / "python"
    if not python.exists():
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
    environment = {f"INPUT_{name.upper()}": value for name, value in values.items()}
    paths = {"RUNNER_TEMP": str(temporary), "GITHUB_STEP_SUMMARY": str(temporary / "summary")}
    return bash(action["runs"]["steps"][-1]["run"], folder, **environment, **paths)


def test_the_action_reports_and_fails(deploy: Path) -> None:
    done = run_action(deploy, sarif="out.sarif")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error ")
    assert "file=deploy folder/pod.yaml,line=7" in done.stdout
    assert json.loads((deploy / "out.sarif").read_text())["runs"][0]["results"]
    assert "visible-devices-env" in (deploy.parent / f"{deploy.name}-runner/summary").read_text()
    (deploy / "good.yaml").write_text(GOOD)
    assert run_action(deploy, paths="good.yaml\n").returncode == 0
    done = run_action(deploy, paths="good.yaml\ndeploy folder\n", options="--fail-on=error\n-q")
    assert done.returncode == 1
    options = "--profile gke\n--exclude  deploy folder\n--isolated"
    assert run_action(deploy, options=options).returncode == 0
    done = run_action(deploy, paths="--version; $(touch x) `touch y`")
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)
    assert sorted(file.name for file in deploy.iterdir() if len(file.name) == 1) == []


def test_the_component_reports_and_fails(deploy: Path) -> None:
    made = job({"options": "--fail-on=warning --isolated"})
    assert made["variables"]["GPUWARD_VERSION"] == __version__
    done = bash("\n".join(made["script"]), deploy, **made["variables"])
    assert done.returncode == 1, done.stderr
    for file in made["artifacts"]["reports"].values():
        assert "visible-devices-env" in (deploy / file).read_text()


def test_the_table_of_the_document_has_the_inputs_of_the_component() -> None:
    head, _ = documents()
    part = DOCUMENT.split("\n## GitLab CI\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \|.* \| (.*?) ?\|$", part, re.MULTILINE)
    shown = {name: default.strip("`") for name, default in rows}
    assert shown == {name: entry["default"] for name, entry in head["spec"]["inputs"].items()}


def test_the_component_refuses_a_version_that_is_none() -> None:
    with pytest.raises(ValueError, match="version"):
        job({"version": "0.1.0; curl example.com"})


def test_the_commands_of_the_pipelines_in_the_document_work(deploy: Path) -> None:
    """The `sh` blocks of the Jenkins pipeline, without the installation.

    Nothing is found in the folder in which gpuward is installed: there are faulty examples in it.
    """
    (pipeline,) = (text for language, text in BLOCKS if language == "groovy")
    (installed,) = re.findall(r"-m venv (\S+)", pipeline)
    (deploy / installed).mkdir()
    (deploy / installed / "example.yaml").write_text(BAD)
    commands = [c for c in re.findall(r"sh '([^']+)'", pipeline) if "pip install" not in c]
    assert commands
    for command in commands:
        done = bash(command, deploy)
        assert done.returncode == 1, done.stderr
    for file in re.findall(r"junit '([^']+)'", pipeline):
        report = (deploy / file).read_text()
        assert "visible-devices-env" in report
        assert installed not in report


def test_the_job_about_a_changed_policy_sees_what_extended_files_open(tmp_path: Path) -> None:
    """Its steps, without the installation, on branches of a repository."""
    (job_of_policy,) = (
        found
        for language, text in BLOCKS
        if language == "yaml" and "policy prove" in text and (found := yaml.safe_load(text))
    )
    assert job_of_policy[True] == "pull_request"  # YAML reads `on` as true
    script = job_of_policy["jobs"]["policy"]["steps"][-1]["run"]
    script = re.sub(r"^pipx install .*\n", "", script)
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)

    def commit(action: str) -> None:
        header = "apiVersion: gpuward.io/v1\nkind: Policy\n"
        (folder / "gpuward.yaml").write_text(f"{header}extends: [base.yaml]\n")
        rules = f"rules: {{visible-devices-env: {{action: {action}}}}}\n"
        (folder / "base.yaml").write_text(header + rules)
        git("add", ".")
        git("commit", "-q", "-m", action)

    def run_job(name: str) -> subprocess.CompletedProcess[str]:
        temporary = tmp_path / name
        temporary.mkdir()
        return bash(script, folder, GITHUB_BASE_REF="main", RUNNER_TEMP=str(temporary))

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "no policy yet")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    commit("warn")
    opened = run_job("first")
    assert (opened.returncode, "refused -> warned" in opened.stdout) == (1, True), opened.stderr
    commit("deny")
    assert run_job("same").returncode == 0
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    commit("warn")
    assert run_job("extended").returncode == 1
