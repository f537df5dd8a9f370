"""The certificate controller on a real API server, with the rights of its manual and no more."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from cryptography.x509 import Certificate
from structlog.testing import capture_logs

from certs.controller.controller import Controller, ControllerConfig
from certs.controller.rotation import RotationPolicy
from certs.controller.secrets import CertificateState, decode
from certs.pki.authority import service_names
from certs.pki.keypairs import KeyPair, bundle, fingerprint, is_issued_by
from cluster.api import ClusterError, ConfigurationKind, ConfigurationRef, ConflictError
from cluster.client import FIELD_MANAGER, KubernetesCluster
from tests.testkit.certs.fake_cluster import Time, controller
from tests.testkit.chart.permissions import prepare
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DAY = datetime.timedelta(days=1)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


class Reached(NamedTuple):
    """What a rotation has come to."""

    leaf: KeyPair
    trusted: tuple[Certificate, ...]
    retired: tuple[Certificate, ...]


class Installation(NamedTuple):
    """What a chart makes, and who the controller is."""

    plane: ControlPlane
    namespace: str
    token: str
    configurations: list[ConfigurationRef]

    @property
    def cluster(self) -> KubernetesCluster:
        file = self.plane.kubeconfig_for(self.token)
        return KubernetesCluster(self.namespace, str(file))

    @property
    def work(self) -> ControllerConfig:
        return ControllerConfig("gpuward-ca", "gpuward-tls", "gpuward-certs", self.configurations)

    def controller(self, time: Time, **given: Any) -> Controller:
        plan = RotationPolicy(service_names("gpuward", self.namespace))
        cluster: Any = self.cluster
        return controller(cluster, time, work=self.work, plan=plan, **given)

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
                "name": f"{what}.gpuward.io",
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
            for what in ("pods", "workloads")
        ],
    }


def applied(plane: ControlPlane, kind: ConfigurationKind, manifest: dict[str, Any]) -> Answer:
    """What happens when a tool such as Flux, Argo CD or helm 4 applies it."""
    path = f"{ADMISSION}/{kind.value}/{manifest['metadata']['name']}?fieldManager=gitops"
    return plane.request("PATCH", path, manifest, content_type="application/apply-patch+yaml")


@pytest.fixture
def installation(plane: ControlPlane) -> Iterator[Installation]:
    namespace = plane.namespace()
    plane.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "other"}})
    name = f"gpuward-{namespace}"
    configurations = [ConfigurationRef(kind, name) for kind in ConfigurationKind]
    for kind in ConfigurationKind:
        applied(plane, kind, configuration(kind, name, namespace))
    prepare(plane, namespace, name)
    yield Installation(plane, namespace, plane.token("gpuward-certs", namespace), configurations)
    for kind in ConfigurationKind:
        plane.request("DELETE", f"{ADMISSION}/{kind.value}/{name}")


def test_the_first_certificate(installation: Installation) -> None:
    before = [installation.webhooks(kind) for kind in ConfigurationKind]
    assert installation.controller(Time()).reconcile()
    stored = installation.stored
    assert stored.signer
    assert stored.leaf
    assert installation.published == {bundle([stored.signer.certificate])}
    assert set(installation.data("gpuward-tls")) == {"tls.crt", "tls.key", "ca.crt"}
    after = [installation.webhooks(kind) for kind in ConfigurationKind]
    for webhook in (webhook for webhooks in after for webhook in webhooks):
        del webhook["clientConfig"]["caBundle"]
    assert after == before, "and nothing else was touched"


def test_a_whole_rotation(installation: Installation) -> None:
    time = Time()
    served: dict[str, str | None] = {}
    controlling = installation.controller(time, replicas=lambda: served)

    def rounds(count: int) -> Reached:
        for _ in range(count):
            time.passed += datetime.timedelta(minutes=1)
            assert controlling.reconcile()
        stored = installation.stored
        assert stored.leaf
        served["127.0.0.1"] = fingerprint(stored.leaf.certificate)
        assert installation.published == {bundle(stored.trusted)}
        return Reached(stored.leaf, stored.trusted, stored.retired)

    first = rounds(2)
    time.passed += 244 * DAY
    waiting = rounds(3)
    assert is_issued_by(first.trusted[0], waiting.leaf.certificate)
    assert len(waiting.trusted) == 2
    done = rounds(15)
    assert done.leaf.certificate != waiting.leaf.certificate
    assert done.retired == (first.trusted[0],)
    assert set(done.trusted) == set(waiting.trusted)
    time.passed += 91 * DAY
    rounds(1)
    assert len(rounds(1).trusted) == 1


def test_drift_is_healed(installation: Installation) -> None:
    controlling = installation.controller(Time())
    controlling.reconcile()
    wanted = installation.published
    name = installation.configurations[0].name
    for kind in ConfigurationKind:
        path = f"{ADMISSION}/{kind.value}/{name}"
        found = installation.get(path)
        again = configuration(kind, name, installation.namespace)
        again["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        assert installation.plane.request("PUT", path, again).status == 200
    assert installation.published == {b""}
    assert controlling.reconcile()
    assert installation.published == wanted


def test_a_tool_that_applies_the_chart_again_meets_no_conflict(installation: Installation) -> None:
    controlling = installation.controller(Time())
    controlling.reconcile()
    wanted = installation.published
    for kind in ConfigurationKind:
        manifest = configuration(kind, installation.configurations[0].name, installation.namespace)
        answer = applied(installation.plane, kind, manifest)
        assert answer.status == 200, answer.body
    assert installation.published == wanted
    assert controlling.status.published == 2, "nothing had to be healed"


def test_a_tool_can_take_a_webhook_away(installation: Installation) -> None:
    # After server-side apply by the controller it could not: part of the webhook would stay.
    controlling = installation.controller(Time())
    controlling.reconcile()
    for kind, name in installation.configurations:
        manifest = configuration(kind, name, installation.namespace)
        del manifest["webhooks"][0]
        assert applied(installation.plane, kind, manifest).status == 200
        assert [w["name"] for w in installation.webhooks(kind)] == ["workloads.gpuward.io"]
    assert controlling.reconcile()


def test_the_bundle_is_owned_and_nothing_else(installation: Installation) -> None:
    installation.controller(Time()).reconcile()
    name = installation.configurations[0].name
    for kind in ConfigurationKind:
        found = installation.get(f"{ADMISSION}/{kind.value}/{name}")["metadata"]["managedFields"]
        (ours,) = [entry for entry in found if entry["manager"] == FIELD_MANAGER]
        owned = ours["fieldsV1"].pop("f:webhooks")
        assert ours["fieldsV1"] == {}
        assert len(owned) == 2
        for fields in owned.values():
            assert fields == {"f:clientConfig": {"f:caBundle": {}}}


def test_what_must_exist_beforehand_is_said(installation: Installation) -> None:
    cluster = installation.cluster
    path = f"/api/v1/namespaces/{installation.namespace}/secrets/gpuward-tls"
    assert installation.plane.request("DELETE", path).status == 200
    with pytest.raises(ClusterError, match=r'"gpuward-tls" not found; .* must exist beforehand'):
        cluster.get_secret("gpuward-tls")


def test_versions_that_are_old_are_refused(installation: Installation) -> None:
    installation.controller(Time()).reconcile()
    cluster, (mutating, _) = installation.cluster, installation.configurations
    secret = cluster.get_secret("gpuward-tls")
    cluster.update_secret({**secret, "data": {}})
    with pytest.raises(ConflictError):
        cluster.update_secret({**secret, "data": {"a": ""}})
    lease = cluster.get_lease("gpuward-certs")
    cluster.update_lease({**lease, "spec": {"holderIdentity": "another"}})
    with pytest.raises(ConflictError):
        cluster.update_lease({**lease, "spec": {"holderIdentity": "third"}})
    found = cluster.get_configuration(mutating)
    assert found
    version = found["metadata"]["resourceVersion"]
    cluster.write_bundle(mutating, version, [0, 1], "")
    with pytest.raises(ConflictError):
        cluster.write_bundle(mutating, version, [0], "")


def test_a_configuration_that_is_not_there(plane: ControlPlane) -> None:
    cluster = KubernetesCluster("default", str(plane.kubeconfig))
    assert (
        cluster.get_configuration(ConfigurationRef(ConfigurationKind.MUTATING, "no-such-name"))
        is None
    )
    with pytest.raises(ClusterError, match="404"):
        cluster.get_secret("nothing-of-this-name")


def test_nothing_else_is_allowed(installation: Installation) -> None:
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
        ("PATCH", f"{core}/secrets/gpuward-ca"),
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
        sent = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = client.request(method, path, body, content_type=sent)
        assert answer.status == 403, (method, path, answer)
