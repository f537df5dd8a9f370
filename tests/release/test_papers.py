"""The claims of the threat model, docs/support.md and the issue forms, compared with facts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.testkit.paths import DOCS, ROOT, TESTS

SUPPORT = (DOCS / "support.md").read_text(encoding="utf-8")
THREATS = (DOCS / "threat-model.md").read_text(encoding="utf-8")
TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def minor_versions(folder: str, module: str) -> set[str]:
    """The minor versions of a Go module in the go.mod files that `folder` matches."""
    found = re.compile(rf"^\s*{re.escape(module)} v(\d+\.\d+)\.", re.MULTILINE)
    files = (TESTS / "testkit").glob(f"{folder}/go.mod")
    return {version for file in files for version in found.findall(file.read_text("utf-8"))}


def row(what: str) -> str:
    """The row of the table of versions about something."""
    (found,) = re.findall(rf"^\| {re.escape(what)} \|.*$", SUPPORT, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[^`]+)`", THREATS))))
def test_what_the_threat_model_names_as_proof_is_a_test(name: str) -> None:
    file, _, test = name.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"def {test or 'test_'}" in text


def test_every_attack_of_the_threat_model_has_a_proof() -> None:
    table = THREATS.split("## Attacks and what stops them", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert [line for line in rows if "`tests/" not in line.split("|")[-2]] == []


def test_the_supported_versions_are_those_that_are_tested() -> None:
    tested = minor_versions("control_plane/kubernetes*", "k8s.io/kubernetes")
    assert len(tested) == 3
    assert all(version in row("Kubernetes, for the webhook") for version in tested)
    chart = yaml.safe_load((ROOT / "charts/gpuward/Chart.yaml").read_text())
    oldest = re.fullmatch(r">=(1\.\d+)\.0-0", chart["kubeVersion"])
    assert oldest
    assert f"| {oldest[1]} and newer |" in row("Kubernetes, for the webhook")
    for helm in ("helm.sh/helm/v3", "helm.sh/helm/v4"):
        (version,) = minor_versions("control_plane/helm", helm)
        assert version in row("Helm")
    toolkits = minor_versions("container_runtime/*", TOOLKIT)
    assert len(toolkits) == 3
    assert all(version in row("NVIDIA's container toolkit") for version in toolkits)


def test_the_supported_versions_of_python_are_those_of_ci() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    classifiers = "\n".join(project["classifiers"])
    assert project["requires-python"] == f">={tested[0]}"
    assert re.findall(r"Python :: (3\.\d+)", classifiers) == tested
    assert row("Python").endswith(f"| {tested[0]} and newer | {' and '.join(tested)} |")


def test_the_issue_forms_are_valid_and_ask_for_a_report() -> None:
    check = Path(sys.executable).with_name("check-jsonschema")
    forms = [form for form in FORMS if form.name != "config.yml"]
    config = [form for form in FORMS if form.name == "config.yml"]
    for schema, files in (("issue-forms", forms), ("issue-config", config)):
        command: list[Path | str] = [check, "--builtin-schema", f"vendor.github-{schema}", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(forms) == 3
    for form in forms:
        assert "`gpuward report FILE`" in form.read_text(encoding="utf-8"), form.name


@pytest.mark.parametrize(
    "name", ["SECURITY.md", "GOVERNANCE.md", "MAINTAINERS.md", "CODE_OF_CONDUCT.md", "README.md"]
)
def test_links_of_the_papers_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []
