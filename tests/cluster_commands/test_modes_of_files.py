"""`gpuward modes` reads files as well as a cluster, and writes into none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cluster.modes import cli as modes
from tests.testkit.chart.rendering import render

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "taker", "namespace": "research"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example.com/app:1",
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
            }
        ]
    },
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Two namespaces, a pod that mode deny would refuse, and the webhooks of the chart."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (("research", {}), ("serving", {"gpuward.io/mode": "deny"}))
    ]
    written = tmp_path / "cluster.yaml"
    written.write_text(yaml.safe_dump_all([*namespaces, POD, *render("")]), encoding="utf-8")
    return str(written)


def test_modes_and_refusals_of_files(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-f", file, "--isolated", "--set", "deny", "--all", "-o", "json"]
    assert modes.main(arguments) == 1
    found = {each["namespace"]: each for each in json.loads(capsys.readouterr().out)["namespaces"]}
    assert found["research"] == {
        "namespace": "research",
        "mode": "warn",
        "newMode": "deny",
        "wouldBeRefused": ["pod/taker"],
        "wouldBeKeptOff": [],
        "changed": True,
    }
    assert (found["serving"]["mode"], found["serving"]["changed"]) == ("deny", False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--set", "deny", "--all", "--write"], "--write is for a cluster: leave --filename out"),
        (["-l", "a=b"], "--selector is for a cluster: name the namespaces of the files"),
    ],
)
def test_what_files_cannot_do_is_refused(
    file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    with pytest.raises(SystemExit):
        modes.main(["-f", file, *arguments])
    assert why in capsys.readouterr().err


def test_files_without_a_namespace_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "cluster.yaml"
    written.write_text(yaml.safe_dump(POD), encoding="utf-8")
    assert modes.main(["-f", str(written), "--isolated", "--set", "deny", "--all"]) != 0
    assert "the files have no Namespace" in capsys.readouterr().err
