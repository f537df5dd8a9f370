"""`gpuward doctor` on a real API server, with the real webhook registered."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from cluster.doctor.cli import main
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import DENY
from tests.testkit.https_server import Answer, Request, https_server

BAD_POD = pod(container(**variable("all")))


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[Any]]:
    main([*arguments, "-o", "json"])
    found: dict[str, list[Any]] = {}
    for row in json.loads(capsys.readouterr().out)["rows"]:
        found.setdefault(row["check"], []).append(row)
    return found


def test_an_administrator_sees_that_the_webhook_answers(
    plane: ControlPlane, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace({"gpuward.io/mode": "Deny"})
    found = rows(capsys, "--kubeconfig", str(plane.kubeconfig))
    answers = [row for row in found["webhook"] if row["subject"].startswith(server.url)]
    assert len(answers) == 6
    assert {row["state"] for row in answers} == {"ok"}
    assert all("; certificate until 20" in row["message"] for row in answers)
    assert [row["state"] for row in found["namespaces"] if row["subject"] == namespace] == ["wrong"]
    # Other tests let calls fail, so only that the API server says is certain.
    assert {row["state"] for row in found["failed calls"]} <= {"ok", "wrong"}


def test_calls_that_failed_before_a_report_do_not_count_later(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The calls really fail: no server listens where the webhook is registered."""
    namespace = plane.namespace()
    config = by_url("https://127.0.0.1:1", plane.authority.bundle)
    options = ("--kubeconfig", str(plane.kubeconfig))
    report = tmp_path / "doctor.json"
    with registered(plane, config, DENY, name=f"doctor-{namespace}", only=namespace):

        def fail_open(*more: str) -> dict[str, Any]:
            found = rows(capsys, *options, *more)["failed calls"]
            (row,) = (row for row in found if row["subject"] == "fail open")
            return dict(row)

        def is_wrong() -> bool:
            create(plane, namespace, BAD_POD, dry_run=True)
            return bool(fail_open()["state"] == "wrong")

        eventually(is_wrong, what="the API server counts a call that failed")
        main([*options, "-o", "json"])
        report.write_text(capsys.readouterr().out, encoding="utf-8")
        assert fail_open()["state"] == "wrong"
        since = fail_open("--since-report", str(report))
        assert since["state"] == "ok"
        assert since["message"].startswith("none since 20")
        create(plane, namespace, BAD_POD, dry_run=True)
        assert fail_open("--since-report", str(report))["state"] == "wrong"


def own_address() -> str:
    """An address of this machine to which API servers connect; they refuse loopback addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_kubelets_are_asked_through_the_api_server(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node and the way to its kubelet are real; in the place of the kubelet is a server.

    Its answer has the form of Kubernetes' cmd/kubelet/app/server.go, initConfigz.
    """
    paths: list[str] = []

    def kubelet(request: Request) -> Answer:
        paths.append(request.path)
        return Answer(b'{"kubeletconfig": {"cpuManagerPolicy": "static"}}')

    address = own_address()
    pair = plane.authority.issue("kubelet", hosts=[address])
    with https_server(kubelet, pair.server_context(), (address, 0)) as port:
        status = {
            "allocatable": {"aliyun.com/gpu-mem": "15"},
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        node = {"metadata": {"name": "shared"}, "spec": {"unschedulable": True}, "status": status}
        plane.create("/api/v1/nodes", node)
        try:
            found = rows(capsys, "--kubeconfig", str(plane.kubeconfig), "--ask-kubelets")
        finally:
            plane.request("DELETE", "/api/v1/nodes/shared")
    (row,) = found["CPU policy"]
    assert (row["subject"], row["state"], paths) == ("shared", "wrong", ["/configz"])


def test_an_account_without_rights_learns_which_it_needs(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace()
    kubeconfig = plane.kubeconfig_for(plane.token("default", namespace))
    found = rows(capsys, "--kubeconfig", str(kubeconfig))
    assert {row["state"] for of_check in found.values() for row in of_check} == {"not known"}
    needed = {row["remedy"] for of_check in found.values() for row in of_check}
    assert needed == {
        "grant the right to list daemonsets.apps",
        "grant the right to list mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "grant the right to list nodes",
        "grant the right to list pods",
        "grant the right to list validatingadmissionpolicies.admissionregistration.k8s.io",
        "grant the right to list validatingwebhookconfigurations.admissionregistration.k8s.io",
        "grant `get` on the nonResourceURL /metrics",
    }
