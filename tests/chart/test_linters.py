"""Linters have nothing to say about the chart: our own, and kube-score."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.testkit.chart.rendering import CI_VALUES, rendering
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import ROOT

every_values = pytest.mark.parametrize("name", CI_VALUES)
ACCEPTED: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "data" / "chart_linter.yaml").read_text(encoding="utf-8")
)
# A CPU limit would slow down what API servers wait for.
FLAGS = ("--ignore-container-cpu-limit", "--enable-optional-test=container-seccomp-profile")
GOOD = 7


def complaints(tools: Programs, text: str) -> list[tuple[str, str, str]]:
    """What kube-score finds: the check, the component and what is wrong with it."""
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
    """Whether this row of the file speaks of that complaint about those values."""
    return (
        row["check"] == check
        and component in row.get("only", [component])
        and name in row.get("values", [name])
    )


@every_values
def test_our_own_linter_finds_nothing(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", "--notes", "--format=json", "-"],
        input=rendering(CI_VALUES[name]),
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
def test_kube_score_finds_nothing_that_is_not_meant_to_be(chart_tools: Programs, name: str) -> None:
    found = complaints(chart_tools, rendering(CI_VALUES[name]))
    left = [one for one in found if not any(accepts(row, name, one[0], one[1]) for row in ACCEPTED)]
    assert left == []


def test_nothing_is_accepted_that_is_not_there(chart_tools: Programs) -> None:
    found = {
        (name, check, component)
        for name in CI_VALUES
        for check, component, _ in complaints(chart_tools, rendering(CI_VALUES[name]))
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
def test_worse_values_would_be_noticed(chart_tools: Programs, text: str, check: str) -> None:
    assert any(check in found for found, _, _ in complaints(chart_tools, rendering(text)))
