"""Tests of `gpuward audit` on a real control plane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster_commands.audit.cli import main
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

BYPASS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def pod_spec(**container: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example/x", **container}]
    return {"containers": containers, "tolerations": TOLERATIONS}


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A namespace in mode deny, where admission was away: a Deployment and a Pod use GPUs."""
    plane.gpu_node("audited", gpus=4)
    namespace = plane.namespace({"gpuward.io/mode": "deny"})
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(env=BYPASS)}
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "audited"}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    plane.create(path, {"metadata": {"name": "web"}, "spec": spec})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    honest = pod_spec(resources={"limits": {"nvidia.com/gpu": 1}})
    plane.create(pods, {"metadata": {"name": "honest"}, "spec": honest})
    plane.create(pods, {"metadata": {"name": "web"}, "spec": template["spec"]})

    def phases() -> list[str]:
        return [pod["status"].get("phase") for pod in plane.request("GET", pods).body["items"]]

    eventually(lambda: phases() == ["Running"] * 5, what="all pods run")
    return namespace


def test_what_runs_is_evaluated_as_what_it_is(
    plane: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--isolated", "-n", namespace, "--format=json"]
    assert main(["--kubeconfig", str(plane.kubeconfig), *options]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["not_evaluated"], captured.err) == ([], "")
    # The scheduler's node is no finding, and the pods of the Deployment are no findings of theirs.
    errors = [f for f in report["findings"] if f["level"] == "error"]
    assert [(f["rule"], f["owner"], f["objects"]) for f in errors] == [
        ("visible-devices-env", {"kind": "Deployment", "name": "web"}, 5),
        ("visible-devices-env", {"kind": "Pod", "name": "web"}, 1),
    ]
    gpus, refused = [remark["message"] for remark in report["remarks"]]
    assert gpus.startswith("node audited: 4 running pods can use GPUs that nobody requested: Pod ")
    assert refused.startswith(f"namespace {namespace}: 4 pods would be refused now: ")
    assert f"Pod {namespace}/honest" not in gpus + refused
    # An account with one right
    make = ("-n", namespace, "create")
    plane.kubectl(*make, "role", "auditor", "--verb=list", "--resource=pods")
    account = f"--serviceaccount={namespace}:default"
    plane.kubectl(*make, "rolebinding", "auditor", "--role=auditor", account)
    kubeconfig = plane.kubeconfig_for(plane.token("default", namespace))
    assert main(["--kubeconfig", str(kubeconfig), *options]) == 3
    report = json.loads(capsys.readouterr().out)
    assert {f["owner"]["name"] for f in report["findings"] if f["level"] == "error"} == {"web"}
    missing = sorted(failed["message"].partition(": ")[0] for failed in report["not_evaluated"])
    where = f" in namespace {namespace}"
    assert f"cannot list deployments.apps{where}" in missing
    assert f"cannot list resourcequotas{where}" in missing
    assert f"cannot list pods{where}" not in missing
    said = [remark["message"] for remark in report["remarks"]]
    assert said[0].endswith("it needs the right to list nodes")
    assert said[1].endswith("it needs the right to list namespaces")
    assert said[2].startswith("node audited: 4 running pods can use GPUs")
    assert plane.request("DELETE", "/api/v1/nodes/audited").status == 200
