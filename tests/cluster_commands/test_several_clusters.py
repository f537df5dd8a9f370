"""`gpuward audit` and `gpuward gpus` about several contexts, of a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.audit.cli import main as audit
from cluster.gpus.cli import main as gpus
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import free_port

BYPASS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


@pytest.fixture
def fleet(api_server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kubeconfig with the clusters east and west, and one that does not answer; a namespace.

    Both that answer are the same API server: what matters is that each is asked, and named.
    """
    namespace = api_server.namespace()
    containers = [{"name": "main", "image": "example/x", "env": BYPASS}]
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api_server.create(pods, {"metadata": {"name": "notebook"}, "spec": {"containers": containers}})
    content: dict[str, Any] = yaml.safe_load(api_server.kubeconfig.read_text())
    (cluster,), (user,) = content["clusters"], content["users"]
    gone = {**cluster["cluster"], "server": f"https://127.0.0.1:{free_port()}"}
    servers = {"east": cluster["cluster"], "west": cluster["cluster"], "gone": gone}
    content["clusters"] = [{"name": name, "cluster": where} for name, where in servers.items()]
    named = {"east": "east", "east-as-admin": "east", "west": "west", "gone": "gone"}
    content["contexts"] = [
        {"name": name, "context": {"cluster": where, "user": user["name"]}}
        for name, where in named.items()
    ]
    content["current-context"] = "east-as-admin"
    file = tmp_path / "fleet.kubeconfig"
    file.write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(file))
    return namespace


def test_an_audit_has_the_cluster_as_a_column(
    fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--context", "east,west", "-n", fleet, "--isolated", "--color", "never"]
    assert audit([*arguments, "-o", "summary"]) == 1
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.split() == ["CLUSTER", "NAMESPACE", "OWNER", "LEVEL", "RULE", "OBJECTS"]
    expected = [fleet, "Pod/notebook", "error", "visible-devices-env", "1"]
    assert [row.split() for row in rows[:2]] == [["east", *expected], ["west", *expected]]
    assert audit(arguments) == 1
    assert f"--> east   Pod {fleet}/notebook" in capsys.readouterr().out


def test_one_html_file_has_the_findings_of_all(
    fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, data = tmp_path / "fleet.html", tmp_path / "fleet.json"
    formats = [f"--report=html={report}", f"--report=json={data}"]
    assert audit(["--context=east,west", "-n", fleet, "--isolated", *formats]) == 1
    text = report.read_text()
    assert text.count('data-rule="visible-devices-env"') == 2
    assert ">east<" in text
    assert ">west<" in text
    assert [each["file"] for each in json.loads(data.read_text())["findings"]] == ["east", "west"]
    capsys.readouterr()


def test_a_cluster_that_does_not_answer_hides_no_other(
    fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(["--all-contexts", "-n", fleet, "--isolated", "-o", "json"]) == 3
    report = json.loads(capsys.readouterr().out)
    # One context for each cluster, and the current one before others of its cluster.
    assert [each["file"] for each in report["findings"]] == ["east-as-admin", "west"]
    assert {each["file"] for each in report["not_evaluated"]} == {"gone"}


def test_gpus_has_the_cluster_as_a_column(
    api_server: Cluster, fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.gpu_node("of-a-fleet", gpus=3)
    assert gpus(["--context=east,west", "--color=never"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:2] == ["CLUSTER", "NAME"]
    found = [line[0] for line in lines if line[1:2] == ["of-a-fleet"]]
    assert found == ["east", "west"]
    assert gpus(["--all-contexts", "-o", "json", "-n", fleet]) == 3
    captured = capsys.readouterr()
    contexts = [each["context"] for each in json.loads(captured.out)["clusters"]]
    assert contexts == ["east-as-admin", "west"]
    assert "gpuward gpus: gone: " in captured.err
    api_server.request("DELETE", "/api/v1/nodes/of-a-fleet")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--context=east,", "-o", "summary"], "a name between two commas is missing"),
        (["--context=east,west", "--events"], "--events is for one cluster: give one context"),
        (["--all-contexts", "--interval=60"], "--interval is for one cluster: give one context"),
        (["--all-contexts", "-f", "x.json"], "leave --context and --all-contexts out"),
        (["--all-contexts", "--context=east"], "not allowed with"),
    ],
)
def test_what_is_about_one_cluster_is_refused_for_several(
    capsys: pytest.CaptureFixture[str], fleet: str, arguments: list[str], remedy: str
) -> None:
    del fleet
    try:
        status = audit(arguments)
    except SystemExit as end:  # of argparse
        status = int(end.code or 0)
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert remedy in captured.err
