"""`gpuward doctor` and `gpuward audit` on an installation that a user has disabled or broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api.connection import Connection
from cluster.audit.cli import main as audit
from cluster.doctor.cli import main as doctor
from cluster.init import VALUES as INIT_VALUES
from cluster.init.cli import main as init
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import SECRETS
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OK = 200
VALIDATING = f"{ADMISSION}/validatingwebhookconfigurations/gpuward"
MASQUERADED = "127.0.0.77"
NOT_SENT = ("wrong", "not sent to gpuward, and should be sent in mode deny")
BAD_POD = pod(container(**variable("all")))
VALUES = merge_values(
    SLOW_MACHINE,
    {"registration": {"failurePolicy": "Ignore"}, "gpuExceptions": {"enabled": True}},
)
Rows = Callable[[str], dict[str, tuple[str, str]]]


@pytest.fixture(scope="module")
def installed(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    with Installation(chart_plane, kubelet, "helm4") as installation:
        kubelet.proxies[installation.namespace].source = MASQUERADED
        installation.install(VALUES)
        installation.publish_ca_bundle()
        yield installation


@pytest.fixture
def rows(installed: Installation, capsys: pytest.CaptureFixture[str]) -> Rows:
    """The rows of a check of the doctor: state and message by subject."""

    def found(check: str) -> dict[str, tuple[str, str]]:
        doctor(["--kubeconfig", str(installed.plane.kubeconfig), "-o", "json"])
        listed = json.loads(capsys.readouterr().out)["rows"]
        mine = [row for row in listed if row["check"] == check]
        return {row["subject"]: (row["state"], row["message"]) for row in mine}

    return found


@contextmanager
def selecting_nothing(plane: ControlPlane) -> Iterator[None]:
    """Every namespaceSelector of the validating configuration selects no namespace."""
    before = plane.request("GET", VALIDATING).body
    disabled = json.loads(json.dumps(before))
    for entry in disabled["webhooks"]:
        entry["namespaceSelector"]["matchLabels"] = {"never": "x"}
    replace(plane, disabled)
    try:
        yield
    finally:
        replace(plane, before)


def replace(plane: ControlPlane, configuration: Any) -> None:
    def is_replaced() -> bool:
        """The certificate controller may change it in between."""
        version = plane.request("GET", VALIDATING).body["metadata"]["resourceVersion"]
        configuration["metadata"]["resourceVersion"] = version
        return plane.request("PUT", VALIDATING, configuration).status == OK

    eventually(is_replaced, what="the configuration is replaced")


def admitted(plane: ControlPlane, namespace: str) -> bool:
    return create(plane, namespace, BAD_POD, dry_run=True).status == 201


def test_an_installation_as_the_chart_made_it_is_ok(rows: Rows) -> None:
    assert {state for state, _ in rows("registration").values()} == {"ok"}
    assert {state for state, _ in rows("policy").values()} == {"ok"}
    (release,) = rows("release").values()
    assert release == ("ok", "17 objects of the release are there")


def test_webhooks_that_select_no_namespace_are_wrong(
    installed: Installation, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = installed.plane
    namespace = plane.namespace({"gpuward.io/mode": "deny"})
    eventually(lambda: not admitted(plane, namespace), what="gpuward refuses")
    with selecting_nothing(plane):
        eventually(lambda: admitted(plane, namespace), what="gpuward is not called")
        assert create(plane, namespace, BAD_POD).status == 201
        (state, message) = rows("registration")["gpuward (ValidatingWebhookConfiguration)"]
        assert state == "wrong"
        assert "namespaceSelector.matchLabels" in message
        # Of many namespaces a row names the first few, and other tests have some with the label.
        assert NOT_SENT in rows("namespaces").values()
        options = ("--kubeconfig", str(plane.kubeconfig), "--isolated", "-o", "json")
        audit([*options, "--refused-by", "webhook"])
        report = json.loads(capsys.readouterr().out)
        assert {f["namespace"] for f in report["findings"]} >= {namespace}
        warnings = [r["message"] for r in report["remarks"] if r["level"] == "warning"]
        (warning,) = (text for text in warnings if "although nothing excludes them" in text)
        assert "not sent to gpuward" in warning
        assert warning.endswith("this report assumes that they are")
    assert NOT_SENT not in rows("namespaces").values()
    assert {state for state, _ in rows("registration").values()} == {"ok"}


def test_a_policy_that_cannot_be_used_is_wrong(installed: Installation, rows: Rows) -> None:
    path = f"/api/v1/namespaces/{installed.namespace}/configmaps/gpuward-policy"
    before = installed.plane.request("GET", path).body["data"]
    try:
        patch(installed.plane, path, {"gpuward.yaml": "apiVersion: gpuward.io/v1\nkind: Polcy\n"})
        ((state, message),) = rows("policy").values()
        assert (state, "goes by an earlier policy" in message) == ("wrong", True)
    finally:
        patch(installed.plane, path, before)
    assert [state for state, _ in rows("policy").values()] == ["ok"]


def patch(plane: ControlPlane, path: str, data: dict[str, str]) -> None:
    kind = "application/merge-patch+json"
    assert plane.request("PATCH", path, {"data": data}, content_type=kind).status == 200


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("apis/apps/v1/namespaces/{}/deployments/gpuward-certs", "deployment/gpuward-certs"),
        (
            "apis/apps/v1/namespaces/{}/deployments/gpuward-exceptions",
            "deployment/gpuward-exceptions",
        ),
        ("api/v1/namespaces/{}/services/gpuward-replicas", "service/gpuward-replicas"),
        (
            "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/gpuward-certs",
            "rolebinding/gpuward-certs",
        ),
    ],
)
def test_what_somebody_has_deleted_is_wrong(
    installed: Installation, rows: Rows, path: str, subject: str
) -> None:
    plane, full = installed.plane, f"/{path.format(installed.namespace)}"
    saved = plane.request("GET", full).body
    named = f"{subject} in {installed.namespace}"
    plane.request("DELETE", full)
    try:
        assert rows("release")[named] == ("wrong", "it does not exist: somebody has deleted it")
    finally:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            saved["metadata"].pop(field, None)
        plane.create(full.rpartition("/")[0], saved)
    eventually(lambda: named not in rows("release"), what="it is there again, and runs")


def test_a_service_without_endpoints_is_told_from_pods_that_are_not_ready(
    installed: Installation, rows: Rows
) -> None:
    """Pods of these tests have loopback addresses, which API servers accept in no EndpointSlice."""
    plane, namespace = installed.plane, installed.namespace
    service = f"service/gpuward in {namespace}"
    behind = "no endpoint, although 2 replicas of deployment/gpuward are ready"
    assert rows("webhook")[service] == ("wrong", f"{behind}: API servers reach nobody")
    labels = {"kubernetes.io/service-name": "gpuward"}
    ready = {"addresses": ["192.0.2.1"], "conditions": {"ready": True}}
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = {"metadata": {"name": "made", "labels": labels}, "addressType": "IPv4"}
    plane.create(path, {**slices, "endpoints": [ready], "ports": [{"port": 8443}]})
    try:
        assert rows("webhook")[service] == ("ok", "1 ready replica")
    finally:
        plane.request("DELETE", f"{path}/made")


def test_the_contents_of_secrets_stay_in_the_cluster(installed: Installation) -> None:
    """API servers are asked for the metadata alone."""
    source = ApiServerSource(Connection.like_kubectl(str(installed.plane.kubeconfig)))
    found = source.get(SECRETS, installed.namespace, "gpuward-ca")
    assert found is not None
    assert (found["kind"], "data" in found) == ("PartialObjectMetadata", False)


def test_doctor_and_init_name_the_address_from_which_the_webhook_is_called(
    installed: Installation, rows: Rows, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is that of a call of the webhook, which comes by way of the Service."""
    plane = installed.plane
    ((state, message),) = rows("callers").values()
    assert state == "not known"
    assert message.endswith(f"has called from {MASQUERADED}; there is one API server")
    assert init(["--kubeconfig", str(plane.kubeconfig), "--directory", str(tmp_path)]) == 0
    capsys.readouterr()
    written = yaml.safe_load((tmp_path / INIT_VALUES).read_text())["networkPolicy"]
    assert written == {"webhookFrom": [{"ipBlock": {"cidr": f"{MASQUERADED}/32"}}]}
    installed.upgrade(merge_values(VALUES, {"networkPolicy": written}))
    try:
        ((state, message),) = rows("callers").values()
        assert (state, f"it allows {MASQUERADED}," in message) == ("ok", True)
    finally:
        installed.upgrade(VALUES)
