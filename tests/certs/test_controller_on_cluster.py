"""Tests of the certificate controller on a real API server, with only its documented rights."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from cryptography.x509 import Certificate
from structlog.testing import capture_logs

from certs.authority import service_names
from certs.keypairs import KeyPair, is_issued_by, pem_bundle
from certs.rotation import RotationPolicy
from certs.secrets import CertificateState, decode
from cluster.api.client import FIELD_MANAGER, KubernetesCluster
from cluster.api.errors import (
    NEW_BUNDLE_ANNOTATION,
    ConfigurationKind,
    ConfigurationRef,
    ConflictError,
    NotCreatedError,
)
from cluster.controllers.certificates import CertificateController, ControllerConfig, ServiceRef
from tests.testkit.certs.fake_cluster import FakeTime, controller
from tests.testkit.chart.permissions import create_controller_account
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DAY = datetime.timedelta(days=1)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


class RotationResult(NamedTuple):
    """The certificates after some reconciliations."""

    leaf: KeyPair
    trusted: tuple[Certificate, ...]
    retired: tuple[Certificate, ...]


class Installation(NamedTuple):
    """The webhook configurations that the chart creates, and the token of the controller."""

    plane: ControlPlane
    namespace: str
    token: str
    configurations: list[ConfigurationRef]

    @property
    def cluster(self) -> KubernetesCluster:
        file = self.plane.kubeconfig_for(self.token)
        return KubernetesCluster(self.namespace, str(file))

    @property
    def config(self) -> ControllerConfig:
        service = ServiceRef(self.namespace, "gpuward")
        return ControllerConfig(
            "gpuward-ca", "gpuward-tls", "gpuward-certs", service, self.configurations
        )

    def controller(self, time: FakeTime, **given: Any) -> CertificateController:
        policy = RotationPolicy(service_names("gpuward", self.namespace))
        cluster: Any = self.cluster
        return controller(cluster, time, config=self.config, policy=policy, **given)

    def get(self, path: str) -> Any:
        answer = self.plane.request("GET", path)
        assert answer.status == 200, answer
        return answer.body

    def data(self, secret: str) -> dict[str, bytes]:
        found = self.get(f"/api/v1/namespaces/{self.namespace}/secrets/{secret}")
        return {k: base64.b64decode(v) for k, v in found.get("data", {}).items()}

    @property
    def stored(self) -> CertificateState:
        return decode(self.data("gpuward-ca"), self.data("gpuward-tls"))

    def webhooks(self, kind: ConfigurationKind) -> list[Any]:
        name = next(c.name for c in self.configurations if c.kind is kind)
        found: list[Any] = self.get(f"{ADMISSION}/{kind.value}/{name}")["webhooks"]
        return found

    @property
    def published(self) -> set[bytes]:
        found = [
            w["clientConfig"].get("caBundle", "")
            for k in ConfigurationKind
            for w in self.webhooks(k)
        ]
        return {base64.b64decode(text) for text in found}


def configuration(kind: ConfigurationKind, name: str, namespace: str) -> dict[str, Any]:
    service = {"name": "gpuward", "namespace": namespace, "path": "/pods"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": {
            ConfigurationKind.MUTATING: "Mutating",
            ConfigurationKind.VALIDATING: "Validating",
        }[kind]
        + "WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{resource}.gpuward.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "clientConfig": {"service": service},
                "objectSelector": {"matchLabels": {"gpuward.io/never": namespace}},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
            }
            for resource in ("pods", "workloads")
        ],
    }


def server_side_apply(
    plane: ControlPlane, kind: ConfigurationKind, manifest: dict[str, Any]
) -> Response:
    """Apply `manifest` as Flux, Argo CD or helm 4 do; the response."""
    path = f"{ADMISSION}/{kind.value}/{manifest['metadata']['name']}?fieldManager=gitops"
    return plane.request("PATCH", path, manifest, content_type="application/apply-patch+yaml")


@pytest.fixture
def installation(plane: ControlPlane) -> Iterator[Installation]:
    namespace = plane.namespace()
    plane.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "other"}})
    name = f"gpuward-{namespace}"
    configurations = [ConfigurationRef(kind, name) for kind in ConfigurationKind]
    for kind in ConfigurationKind:
        server_side_apply(plane, kind, configuration(kind, name, namespace))
    create_controller_account(plane, namespace, name)
    yield Installation(plane, namespace, plane.token("gpuward-certs", namespace), configurations)
    for kind in ConfigurationKind:
        plane.request("DELETE", f"{ADMISSION}/{kind.value}/{name}")


def test_the_first_certificate(installation: Installation) -> None:
    before = [installation.webhooks(kind) for kind in ConfigurationKind]
    assert installation.controller(FakeTime()).reconcile()
    stored = installation.stored
    assert stored.signer
    assert stored.leaf
    assert installation.published == {pem_bundle([stored.signer.certificate])}
    assert set(installation.data("gpuward-tls")) == {"tls.crt", "tls.key", "ca.crt"}
    after = [installation.webhooks(kind) for kind in ConfigurationKind]
    for webhook in (webhook for webhooks in after for webhook in webhooks):
        del webhook["clientConfig"]["caBundle"]
    assert after == before, "nothing else was changed"


def test_a_complete_rotation(installation: Installation) -> None:
    time = FakeTime()
    served: dict[str, Certificate | None] = {}
    controller_under_test = installation.controller(time, replicas=lambda: served)

    def reconcile(count: int) -> RotationResult:
        for _ in range(count):
            time.passed += datetime.timedelta(minutes=1)
            assert controller_under_test.reconcile()
        stored = installation.stored
        assert stored.leaf
        served["127.0.0.1"] = stored.leaf.certificate
        assert installation.published == {pem_bundle(stored.trusted)}
        return RotationResult(stored.leaf, stored.trusted, stored.retired)

    first = reconcile(2)
    time.passed += 244 * DAY
    waiting = reconcile(3)
    assert is_issued_by(first.trusted[0], waiting.leaf.certificate)
    assert len(waiting.trusted) == 2
    done = reconcile(15)
    assert done.leaf.certificate != waiting.leaf.certificate
    assert done.retired == (first.trusted[0],)
    assert set(done.trusted) == set(waiting.trusted)
    time.passed += 91 * DAY
    reconcile(1)
    assert len(reconcile(1).trusted) == 1


def test_a_removed_bundle_is_written_again(installation: Installation) -> None:
    controller_under_test = installation.controller(FakeTime())
    controller_under_test.reconcile()
    expected = installation.published
    name = installation.configurations[0].name
    for kind in ConfigurationKind:
        path = f"{ADMISSION}/{kind.value}/{name}"
        found = installation.get(path)
        again = configuration(kind, name, installation.namespace)
        again["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        assert installation.plane.request("PUT", path, again).status == 200
    assert installation.published == {b""}
    assert controller_under_test.reconcile()
    assert installation.published == expected


def test_a_tool_that_applies_the_chart_again_meets_no_conflict(installation: Installation) -> None:
    controller_under_test = installation.controller(FakeTime())
    controller_under_test.reconcile()
    expected = installation.published
    for kind in ConfigurationKind:
        manifest = configuration(kind, installation.configurations[0].name, installation.namespace)
        answer = server_side_apply(installation.plane, kind, manifest)
        assert answer.status == 200, answer.body
    assert installation.published == expected
    assert controller_under_test.published == 2, "no bundle had to be written again"


def test_a_tool_can_remove_a_webhook(installation: Installation) -> None:
    # If the controller used server-side apply, the tool could not: its part would stay.
    controller_under_test = installation.controller(FakeTime())
    controller_under_test.reconcile()
    for kind, name in installation.configurations:
        manifest = configuration(kind, name, installation.namespace)
        del manifest["webhooks"][0]
        assert server_side_apply(installation.plane, kind, manifest).status == 200
        assert [w["name"] for w in installation.webhooks(kind)] == ["workloads.gpuward.io"]
    assert controller_under_test.reconcile()


def settle(controller_under_test: CertificateController, time: FakeTime) -> None:
    """Let ten seconds pass, after which the controller has nothing more to write."""
    time.passed += datetime.timedelta(seconds=10)
    assert controller_under_test.reconcile()


def test_api_servers_read_a_configuration_again_after_its_bundle_was_written(
    installation: Installation,
) -> None:
    """By one more change, after which the configuration is as the chart has made it."""
    kind, name = installation.configurations[0]
    given = configuration(kind, name, installation.namespace)
    given["metadata"]["annotations"] = {"example.com/of": "somebody"}
    assert server_side_apply(installation.plane, kind, given).status == 200
    time = FakeTime()
    controller_under_test = installation.controller(time)

    def found() -> list[Any]:
        refs = installation.configurations
        return [installation.get(f"{ADMISSION}/{ref.kind.value}/{ref.name}") for ref in refs]

    def annotations() -> list[Any]:
        return [each["metadata"].get("annotations", {}) for each in found()]

    of_somebody, new = {"example.com/of": "somebody"}, {NEW_BUNDLE_ANNOTATION: "true"}
    assert controller_under_test.reconcile()
    assert annotations() == [of_somebody | new, new]
    before = found()
    settle(controller_under_test, time)
    assert annotations() == [of_somebody, {}]
    after = found()
    for old, present in zip(before, after, strict=True):
        assert old["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]
        assert old["webhooks"] == present["webhooks"]
    settle(controller_under_test, time)
    assert found() == after, "it is written no more"


def test_the_controller_owns_only_the_bundle(installation: Installation) -> None:
    time = FakeTime()
    controller_under_test = installation.controller(time)
    controller_under_test.reconcile()
    settle(controller_under_test, time)
    name = installation.configurations[0].name
    for kind in ConfigurationKind:
        found = installation.get(f"{ADMISSION}/{kind.value}/{name}")["metadata"]["managedFields"]
        (entry_of_controller,) = [entry for entry in found if entry["manager"] == FIELD_MANAGER]
        owned = entry_of_controller["fieldsV1"].pop("f:webhooks")
        assert entry_of_controller["fieldsV1"] == {}
        assert len(owned) == 2
        for fields in owned.values():
            assert fields == {"f:clientConfig": {"f:caBundle": {}}}


def test_outdated_versions_are_refused(installation: Installation) -> None:
    installation.controller(FakeTime()).reconcile()
    cluster, (mutating, _) = installation.cluster, installation.configurations
    secret, lease = cluster.get_secret("gpuward-tls"), cluster.get_lease("gpuward-certs")
    assert secret
    assert lease
    cluster.write_secret({**secret, "data": {}})
    with pytest.raises(ConflictError):
        cluster.write_secret({**secret, "data": {"a": ""}})
    cluster.write_lease({**lease, "spec": {"holderIdentity": "another"}})
    with pytest.raises(ConflictError):
        cluster.write_lease({**lease, "spec": {"holderIdentity": "third"}})
    found = cluster.get_configuration(mutating)
    assert found
    cluster.write_bundle(mutating, found, [0, 1], "")
    with pytest.raises(ConflictError):
        cluster.write_bundle(mutating, found, [0], "")
    with pytest.raises(ConflictError):
        cluster.remove_bundle_annotation(mutating, found["metadata"]["resourceVersion"])


def test_a_configuration_that_does_not_exist_is_none(plane: ControlPlane) -> None:
    cluster = KubernetesCluster("default", str(plane.kubeconfig))
    assert (
        cluster.get_configuration(ConfigurationRef(ConfigurationKind.MUTATING, "no-such-name"))
        is None
    )
    assert cluster.get_secret("nothing-of-this-name") is None


def test_it_creates_what_is_missing_and_nothing_else_by_its_names(
    installation: Installation,
) -> None:
    cluster = installation.cluster
    created = cluster.write_secret({"metadata": {"name": "gpuward-tls"}, "data": {"a": "eA=="}})
    assert created["data"] == {"a": "eA=="}
    with pytest.raises(ConflictError):
        cluster.write_secret({"metadata": {"name": "gpuward-tls"}, "data": {"a": "eQ=="}})
    with pytest.raises(NotCreatedError, match=r"the Secret another does not exist: .*403"):
        cluster.write_secret({"metadata": {"name": "another"}})
    with pytest.raises(NotCreatedError, match=r"the Lease another does not exist: .*403"):
        cluster.write_lease({"metadata": {"name": "another"}})
    assert installation.data("gpuward-tls") == {"a": b"x"}


def test_a_secret_that_disappears_is_there_again_at_once(installation: Installation) -> None:
    running = installation.controller(FakeTime())
    running.reconcile()
    before = installation.data("gpuward-tls"), installation.data("gpuward-ca")
    path = f"/api/v1/namespaces/{installation.namespace}/secrets"
    changes = installation.cluster.secret_changes("gpuward-tls")
    next(changes)  # the watch has begun
    for name in ("gpuward-tls", "gpuward-ca"):
        assert installation.plane.request("DELETE", f"{path}/{name}").status == 200
    next(changes)
    assert running.reconcile()
    assert (installation.data("gpuward-tls"), installation.data("gpuward-ca")) == before


def test_the_controller_has_no_other_rights(installation: Installation) -> None:
    client = installation.plane.client(installation.token)
    core = f"/api/v1/namespaces/{installation.namespace}"
    name = installation.configurations[0].name
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{installation.namespace}/leases"
    mutating = f"{ADMISSION}/mutatingwebhookconfigurations"
    for method, path in (
        ("GET", f"{core}/secrets"),
        ("GET", f"{core}/secrets/other"),
        ("PUT", f"{core}/secrets/other"),
        ("POST", f"{core}/secrets"),
        ("PATCH", f"{core}/secrets/another"),
        ("DELETE", f"{core}/secrets/gpuward-ca"),
        ("GET", "/api/v1/namespaces/default/secrets/gpuward-ca"),
        ("GET", f"{core}/pods"),
        ("GET", f"{core}/endpoints"),
        ("GET", lease),
        ("POST", lease),
        ("DELETE", f"{lease}/gpuward-certs"),
        ("GET", mutating),
        ("POST", mutating),
        ("GET", f"{mutating}/another"),
        ("PATCH", f"{mutating}/another"),
        ("PUT", f"{mutating}/{name}"),
        ("DELETE", f"{mutating}/{name}"),
    ):
        body = {"metadata": {"name": "gpuward-ca"}} if method != "GET" else None
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = client.request(method, path, body, content_type=content_type)
        assert answer.status == 403, (method, path, answer)
