"""`gpuward conformance` on a real API server, with the real webhook and other controls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.conformance.cli import main
from cluster.webhooks.ways import WAYS
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.coverage.table import bypasses

USER = "alice"
ROW = {bypass.name: bypass for bypass in bypasses()}


@pytest.fixture
def user(plane: ControlPlane) -> Iterator[str]:
    """A user who may create pods in every namespace, and nothing else."""
    api = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    name = "conformance-user"
    plane.create(f"{api}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    plane.create(f"{api}/clusterrolebindings", binding)
    await_rights(plane)
    yield USER
    plane.request("DELETE", f"{api}/clusterrolebindings/{name}")
    plane.request("DELETE", f"{api}/clusterroles/{name}")


def report(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, dict[str, Any]]:
    status = main(["--kubeconfig", str(plane.kubeconfig), "-o", "json", *arguments])
    output = capsys.readouterr()
    assert output.out, output.err
    return status, json.loads(output.out)


def states(document: dict[str, Any]) -> dict[str, str]:
    return {way["way"]: way["state"] for way in document["ways"]}


def test_what_the_webhook_closes_is_what_the_table_of_coverage_says(
    plane: ControlPlane,
    server: Server,  # noqa: ARG001  # it is registered
    user: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    namespace = plane.namespace({"gpuward.io/mode": "deny"})
    status, document = report(plane, capsys, "-n", namespace, "--as", user)
    pods = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    assert (status, pods) == (1, [])
    assert document["user"]["name"] == user
    expected = {
        "refused": "refused",
        "fixed": "changed",
        "announced": "open",
        "not stopped": "open",
    }
    found = states(document)
    for way in WAYS:
        outcome = ROW[way.name].entry["cells"].get("pods", "not stopped")
        assert found[way.name] == expected[outcome], way.name
    refused = next(way for way in document["ways"] if way["way"] == "variable")
    assert refused["control"] == "webhook deny.gpuward.io"
    assert "[visible-devices-env]" in refused["seen"]
    assert found["admin-access"] == found["mode-off"] == "refused"


def test_without_gpuward_only_other_controls_close_ways(
    plane: ControlPlane, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    open_one = plane.namespace()
    baseline = plane.namespace({"pod-security.kubernetes.io/enforce": "baseline"})
    names = ("-n", open_one, "-n", baseline)
    _, document = report(plane, capsys, *names, "--as", user)
    by_place = {(way["namespace"], way["way"]): way for way in document["ways"]}
    for way in WAYS:
        assert by_place[open_one, way.name]["state"] == "open", way.name
        outcome = ROW[way.name].entry["cells"].get("baseline", "not stopped")
        found = by_place[baseline, way.name]
        assert (found["state"] == "refused") == (outcome == "refused"), way.name
        assert found["control"] in {"", "Pod Security, level baseline"}


def test_a_user_who_may_create_no_pods_proves_nothing(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace()
    _, document = report(plane, capsys, "-n", namespace, "--as", "nobody")
    of_pods = {way["state"] for way in document["ways"] if way["way"] in ROW}
    assert of_pods == {"not known"}


def test_a_quota_that_is_used_up_proves_nothing(
    plane: ControlPlane, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace()
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}
    plane.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)

    def found() -> dict[str, str]:
        return states(report(plane, capsys, "-n", namespace, "--as", user)[1])

    eventually(lambda: found()["privileged"] != "open", what="the quota counts")
    assert found()["privileged"] == "not known"
    assert found()["variable"] == "open"


def test_an_admission_policy_is_named_as_a_control(
    plane: ControlPlane, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace()
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    name = f"no-host-ipc-{namespace}"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!(has(object.spec.hostIPC) && object.spec.hostIPC)"}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    plane.create(f"{api}ies", {"metadata": {"name": name}, "spec": spec})
    plane.create(f"{api}ybindings", {"metadata": {"name": name}, "spec": binding})

    def way() -> dict[str, Any]:
        _, document = report(plane, capsys, "-n", namespace, "--as", user)
        assert [c["setting"] for c in document["controls"] if c["name"] == name] == [
            f"bound by {name}: Deny"
        ]
        return next(way for way in document["ways"] if way["way"] == "host-ipc")

    try:
        eventually(lambda: way()["state"] == "refused", what="the policy is enforced")
        assert way()["control"] == f"admission policy {name}"
    finally:
        plane.request("DELETE", f"{api}ybindings/{name}")
        plane.request("DELETE", f"{api}ies/{name}")


def test_the_account_itself_is_named_and_said_to_be_no_user(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace()
    main(["--kubeconfig", str(plane.kubeconfig), "-n", namespace])
    text = capsys.readouterr().out
    assert "--as makes the dry runs as one of them" in text
    assert "| a namespace that allows admin access to devices |" in text
