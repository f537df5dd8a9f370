"""The control plane of the tests: what it runs, how it is reached, and that it is cleaned up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import ProcessError, eventually, is_alive
from tests.testkit.control_plane.sources import kubernetes
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.control_plane.warning_webhook import registration, serve_warnings
from tests.testkit.paths import ROOT

PORT = 8443
LIMIT = {"limits": {"nvidia.com/gpu": 1}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def pod(name: str) -> dict[str, Any]:
    container = {"name": "cuda", "image": "example/cuda", "resources": LIMIT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "tolerations": [TOLERATION]},
    }


def test_the_api_server_has_the_requested_version(api_server: Cluster) -> None:
    served = api_server.request("GET", "/version").body["gitVersion"]
    assert served == api_server.programs.version
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        module = (kubernetes().folder / "go.mod").read_text()
        found = re.search(r"k8s.io/kubernetes (v\S+)", module)
        assert found is not None
        assert served == found[1]


def test_a_gpu_pod_is_scheduled_and_runs(plane: ControlPlane) -> None:
    namespace = plane.namespace()
    plane.gpu_node("one-gpu", gpus=1)
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        for name in ("first", "second"):
            plane.create(path, pod(name))

        def phases() -> list[str]:
            pods = plane.request("GET", path).body["items"]
            return sorted(each["status"]["phase"] for each in pods)

        eventually(lambda: phases() == ["Pending", "Running"], what="one of two pods runs")
    finally:
        # The one that waits would take a GPU of other tests.
        plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
        assert plane.request("DELETE", "/api/v1/nodes/one-gpu").status == 200


def test_a_service_account_may_do_only_what_its_roles_allow(api_server: Cluster) -> None:
    namespace = api_server.namespace()
    token = api_server.token("default", namespace)
    path = f"/api/v1/namespaces/{namespace}/pods"
    client = api_server.client(token)
    assert client.request("GET", path).status == 403
    kubeconfig = api_server.kubeconfig_for(token)
    refused = api_server.kubectl("get", "pods", "-n", namespace, check=False, kubeconfig=kubeconfig)
    assert "Forbidden" in refused.stderr
    role = ["role", "reader", "--verb=list", "--resource=pods"]
    binding = ["rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:default"]
    for made in (role, binding):
        api_server.kubectl("create", *made, "-n", namespace)
    eventually(lambda: client.request("GET", path).status == 200, what="it may list pods")


def test_a_service_is_called_as_a_webhook(api_server: Cluster) -> None:
    namespace = api_server.namespace()
    host = f"warner.{namespace}.svc"
    pair = api_server.authority.issue(host, hosts=[host])
    address = api_server.expose("warner", namespace, PORT)
    kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    path = f"/api/v1/namespaces/{namespace}/pods"
    with serve_warnings(address, PORT, pair):
        api_server.create(kind, registration(namespace, PORT, api_server.authority.bundle))

        def warnings() -> list[str]:
            return api_server.request("POST", f"{path}?dryRun=All", pod("x")).warnings

        assert eventually(warnings) == [f'"é" at {host}:{PORT}']
    assert api_server.request("DELETE", f"{kind}/{namespace}").status == 200
    key = "warner.example.com/seen"
    eventually(lambda: any(e.get("annotations", {}).get(key) for e in api_server.audit_events()))


def test_metrics_are_numbers_by_name_and_labels(api_server: Cluster) -> None:
    samples = api_server.metrics("apiserver_request_")["apiserver_request_total"]
    assert any(labels["verb"] == "GET" and value > 0 for labels, value in samples)


def test_the_other_programs_keep_running_when_the_api_server_restarts(plane: ControlPlane) -> None:
    before = plane.process_ids
    namespace = plane.namespace({"before": "restart"})
    plane.restart_api_server()
    found = plane.kubectl("get", "namespaces", "-l", "before=restart", "-o", "name").stdout
    assert found == f"namespace/{namespace}\n"
    # The controllers create the account of a namespace, so they must have reconnected.
    plane.namespace()
    after = plane.process_ids
    assert {name for name in before if before[name] != after[name]} == {"kube-apiserver"}


def test_two_control_planes_run_side_by_side_and_leave_no_process(
    api_server: Cluster, control_plane_programs: Programs
) -> None:
    with ControlPlane(control_plane_programs, controllers=False) as other:
        ids = other.process_ids
        addresses = {one.service_address(PORT) for one in (api_server, other)}
        assert len(addresses) == 2
        namespace = other.namespace({"only": "here"})
        found = api_server.request("GET", "/api/v1/namespaces?labelSelector=only%3Dhere")
        assert found.body["items"] == []
        path = f"/api/v1/namespaces/{namespace}/pods"
        assert other.request("POST", path, pod("x")).status == 201
        assert all(is_alive(process) for process in ids.values())
    assert not any(is_alive(process) for process in ids.values())


def test_no_process_is_left_when_the_owner_is_killed(
    control_plane_programs: Programs, tmp_path: Path
) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from tests.testkit.control_plane.build import Programs\n"
        "from tests.testkit.control_plane.plane import ControlPlane\n"
        "folder, *programs = map(pathlib.Path, sys.argv[1:])\n"
        "with ControlPlane(Programs(tuple(programs)), folder=folder, controllers=False) as plane:\n"
        "    print(*plane.process_ids.values(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    folders = map(str, (tmp_path, *control_plane_programs.folders))
    with subprocess.Popen(
        [sys.executable, "-c", script, *folders],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        ids = [int(number) for number in owner.stdout.readline().split()]
        owner.send_signal(signal.SIGKILL)
    assert len(ids) == 2
    eventually(lambda: not any(is_alive(process) for process in ids), what="all have ended")


def test_a_program_that_does_not_start_says_why(control_plane_programs: Programs) -> None:
    flags = ["--no-such-flag"]
    plane = ControlPlane(control_plane_programs, controllers=False, api_server_flags=flags)
    with pytest.raises(ProcessError, match=r"kube-apiserver ended[^$]*unknown flag"), plane:
        pass


def test_the_error_about_a_missing_program_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    refusal = pytest.raises(BuildError, match=r"etcd is not in .*make control-plane")
    with refusal, ControlPlane():
        pass
