"""`gpuward why` and `gpuward audit` know the runtime of a TrainJob, if there is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.cli import main as audit
from cluster.why.cli import main as why
from tests.rules.test_train_jobs import GPU, NAMESPACE, QUEUE, TAINT, job, limits, train_job
from tests.rules.test_train_jobs import runtime as training_runtime

AMOUNTS = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "8"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "g1"},
    "spec": {"taints": [TAINT]},
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
}
RUNTIME = training_runtime(
    job("node", "trainer", resources=limits(gpus=2)), kind="ClusterTrainingRuntime"
)


def written(file: Path, *objects: dict[str, Any]) -> str:
    """Write objects into a file; its name."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [*objects]}
    file.write_text(json.dumps(listed), encoding="utf-8")
    return str(file)


def test_why_compares_the_template_of_the_runtime_with_the_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = written(tmp_path / "job.json", train_job("", trainer={"numNodes": 8}))
    cluster = written(tmp_path / "cluster.json", NODE, RUNTIME, *QUEUE)
    assert why(["--manifest", manifest, "-f", cluster, "-n", NAMESPACE]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"asks for 2 {GPU}" in said
    assert "the template is in the ClusterTrainingRuntime torch" in said
    assert f"its 8 pods ask for 16 {GPU} together" in said


def test_why_takes_the_runtime_from_the_same_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = written(tmp_path / "job.json", train_job(""), RUNTIME)
    cluster = written(tmp_path / "cluster.json", NODE)
    assert why(["--manifest", manifest, "-f", cluster, "-n", NAMESPACE]) == 1
    assert f"asks for 2 {GPU}" in capsys.readouterr().out


def test_why_says_that_it_does_not_know_the_runtime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = written(tmp_path / "job.json", train_job(""))
    cluster = written(tmp_path / "cluster.json", NODE, *QUEUE)
    assert why(["--manifest", manifest, "-f", cluster, "-n", NAMESPACE]) == 2
    assert "what runtime the TrainJob t has is not known" in capsys.readouterr().err


@pytest.mark.parametrize("is_known", [True, False])
def test_the_audit_reports_the_train_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_known: bool
) -> None:
    objects = [NODE, *QUEUE, train_job(""), *([RUNTIME] if is_known else [])]
    audit(["-f", written(tmp_path / "cluster.json", *objects), "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    reported = {(each["kind"], each["rule"]) for each in findings}
    assert (("TrainJob", "untolerated-flavor") in reported) is is_known
    assert (("ClusterTrainingRuntime", "toleration-default") in reported) is is_known
