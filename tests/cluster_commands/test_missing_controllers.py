"""What a cluster has no controller for is not known to commands, and no error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.audit.cli import main as audit
from cluster.controllers.inventory import Scope, list_inventory
from cluster.doctor.cli import main as doctor
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import SourceError
from cluster.why.cli import main as why
from policies.loading import default_policy
from tests.testkit.control_plane.plane import ControlPlane

# Of Kueue, KAI and Volcano, of which the cluster has none.
LABELS = {"kueue.x-k8s.io/queue-name": "gpus", "kai.scheduler/queue": "gpus"}
ANNOTATIONS = {"scheduling.volcano.sh/queue-name": "gpus"}
ABOUT_QUEUES = {
    *("flavor-mismatch", "missing-queue", "queue-without-resource", "quota-exceeded"),
    *("unknown-queue-resource", "untolerated-flavor", "unusable-kai-queue"),
}


@pytest.fixture
def job(plane: ControlPlane) -> Iterator[dict[str, Any]]:
    """A Job with GPUs that names queues, in a cluster with a GPU node and without queues."""
    plane.gpu_node("without-controllers", gpus=4)
    namespace = plane.namespace()
    amounts = {"limits": {"nvidia.com/gpu": "1"}}
    spec = {
        "restartPolicy": "Never",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "registry.example/x:1", "resources": amounts}],
    }
    metadata = {"labels": LABELS, "annotations": ANNOTATIONS}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace, **metadata},
        "spec": {"template": {"metadata": metadata, "spec": spec}},
    }
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    plane.create(path, made)
    yield made
    plane.kubectl("delete", "job", "train", "-n", namespace, "--wait=false")
    plane.request("DELETE", "/api/v1/nodes/without-controllers")


def test_commands_know_nothing_of_queues(
    plane: ControlPlane, job: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--kubeconfig", str(plane.kubeconfig)]
    namespace = job["metadata"]["namespace"]
    audit([*where, "-n", namespace, "--isolated", "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["not_evaluated"] == []
    assert not {finding["rule"] for finding in report["findings"]} & ABOUT_QUEUES
    doctor([*where, "-o", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert not [row for row in rows if "kueue" in json.dumps(row).lower()]
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    assert why(["--manifest", str(file), *where, "-n", namespace]) == 0
    written = capsys.readouterr()
    assert "queue" not in written.out.lower() + written.err.lower()


def test_the_inventory_of_the_webhook_has_none(plane: ControlPlane) -> None:
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig), None))
    errors: list[SourceError] = []
    scope = Scope(nodes=True, queues=True)
    list_inventory(source, default_policy(), scope, on_error=errors.append)
    assert errors == []
