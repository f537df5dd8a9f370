"""Linters find nothing in the chart: gpuward's own linter, and kube-score."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.testkit.chart.rendering import CI_VALUES, render_text
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import ROOT

every_values = pytest.mark.parametrize("name", CI_VALUES)
ACCEPTED: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "data" / "chart_linter.yaml").read_text(encoding="utf-8")
)
# A CPU limit would delay answers that API servers wait for.
FLAGS = ("--ignore-container-cpu-limit", "--enable-optional-test=container-seccomp-profile")
GOOD = 7


def kube_score_findings(tools: Programs, text: str) -> list[tuple[str, str, str]]:
    """The findings of kube-score: the check, the component and the summary."""
    command = [str(tools["kube-score"]), "score", *FLAGS, "--output-format=json", "-"]
    done = subprocess.run(
        [*command, "--kubernetes-version=v1.30"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [
        (
            found["check"]["id"],
            made["object_meta"]["labels"]["app.kubernetes.io/component"],
            "; ".join(comment["summary"] for comment in found["comments"] or []),
        )
        for made in json.loads(done.stdout)
        for found in made["checks"]
        if not found["skipped"] and found["grade"] < GOOD
    ]


def accepts(row: dict[str, Any], name: str, check: str, component: str) -> bool:
    """Return whether a row of the file accepts this finding for these values."""
    return (
        row["check"] == check
        and component in row.get("only", [component])
        and name in row.get("values", [name])
    )


@every_values
def test_gpuward_lint_finds_nothing(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", "--notes", "--output=json", "-"],
        input=render_text(CI_VALUES[name]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["findings"] == []
    assert report["summary"]["pods"] >= 3


@every_values
def test_kube_score_finds_only_accepted_findings(chart_tools: Programs, name: str) -> None:
    found = kube_score_findings(chart_tools, render_text(CI_VALUES[name]))
    unexpected = [
        (check, component, summary)
        for check, component, summary in found
        if not any(accepts(row, name, check, component) for row in ACCEPTED)
    ]
    assert unexpected == []


def test_every_accepted_finding_exists(chart_tools: Programs) -> None:
    found = {
        (name, check, component)
        for name in CI_VALUES
        for check, component, _ in kube_score_findings(chart_tools, render_text(CI_VALUES[name]))
    }
    for row in ACCEPTED:
        assert row["why"].endswith(".")
        assert any(accepts(row, *one) for one in found), row["check"]


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("securityContext: {readOnlyRootFilesystem: false}", "readonlyrootfilesystem"),
        ("resources: {limits: null}", "container-resources"),
        ("image: {tag: latest}", "container-image-tag"),
        ("podSecurityContext: {seccompProfile: null}", "seccomp"),
    ],
)
def test_kube_score_finds_worse_values(chart_tools: Programs, text: str, check: str) -> None:
    assert any(
        check in found for found, _, _ in kube_score_findings(chart_tools, render_text(text))
    )
