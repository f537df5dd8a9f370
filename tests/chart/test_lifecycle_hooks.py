"""The chart's test with its own permissions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster.api.errors import ConfigurationKind
from tests.testkit.chart.hooks import prepare_hook, run_hook
from tests.testkit.chart.installation import ADMISSION, SLOW_MACHINE, Installation
from tests.testkit.control_plane.processes import TIMEOUT, eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]
# These are about what is installed, whichever helm has installed it.
pytestmark = pytest.mark.parametrize("installation", ["helm4"], indirect=True, scope="module")

BOTH_KINDS = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
FOREIGN_WEBHOOK = [{"op": "replace", "path": "/webhooks/0/name", "value": "pods.example.com"}]
NO_ENTRY = [{"op": "remove", "path": "/webhooks/0"}]
NO_NAMESPACE = [
    {"op": "add", "path": "/webhooks/0/namespaceSelector/matchLabels", "value": {"team": "none"}}
]
WRONG_CA_BUNDLE = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
CONTENT_TYPE = "application/json-patch+json"


@pytest.fixture(scope="module")
def published(installation: Installation) -> Installation:
    """An installation with published CA bundles."""
    installation.install(SLOW_MACHINE)
    eventually(lambda: b"" not in installation.ca_bundles(), what="the CA bundle is published")
    return installation


@pytest.fixture
def serving(published: Installation) -> Iterator[Installation]:
    """Yield the installation of `published`, restored after each test."""
    webhooks = published.webhooks()
    yield published
    if len(published.pods()) < 2:
        published.restart()
    if published.webhooks() != webhooks:
        restore_configurations(published)


def restore_configurations(installation: Installation) -> None:
    """Delete both configurations, and let helm create them again."""
    installation.plane.kubectl("delete", BOTH_KINDS, "gpuward", "--ignore-not-found")
    installation.upgrade(SLOW_MACHINE)
    installation.publish_ca_bundle()


def patch_configuration(installation: Installation, kind: ConfigurationKind, patch: Any) -> None:
    """Patch a webhook configuration."""
    path = f"{ADMISSION}/{kind.value}/gpuward"
    answer = installation.plane.request("PATCH", path, patch, content_type=CONTENT_TYPE)
    assert answer.status == 200, answer


def test_helm_test_calls_the_webhook(serving: Installation) -> None:
    done = serving.helm("test", TIMEOUT)
    assert "Succeeded" in done.stdout
    final_phase, log = run_hook(serving, "test")
    assert final_phase == "Succeeded", log


def test_the_test_fails_if_api_servers_do_not_trust_the_webhook(serving: Installation) -> None:
    (certificate_controller,) = serving.pods("certs")
    # It would fix the bundle before the test looks at it.
    with certificate_controller.paused():
        patch_configuration(serving, ConfigurationKind.VALIDATING, WRONG_CA_BUNDLE)
        final_phase, log = run_hook(serving, "test")
    assert final_phase == "Failed", log
    assert "caBundle" in log


def test_the_test_fails_if_somebody_has_changed_the_configurations(serving: Installation) -> None:
    patch_configuration(serving, ConfigurationKind.VALIDATING, NO_ENTRY)
    patch_configuration(serving, ConfigurationKind.MUTATING, NO_NAMESPACE)
    final_phase, log = run_hook(serving, "test")
    assert final_phase == "Failed"
    assert "validatingwebhookconfigurations/gpuward: deny.gpuward.io: it is missing" in log
    selector = 'namespaceSelector.matchLabels: expected nothing, found {"team": "none"}'
    assert f"mutatingwebhookconfigurations/gpuward: pods.deny.gpuward.io: {selector}" in log
    restore_configurations(serving)  # as the log says
    final_phase, log = run_hook(serving, "test")
    assert final_phase == "Succeeded", log


def test_the_test_fails_if_no_server_answers(serving: Installation) -> None:
    for pod in serving.pods():
        pod.kill()
    eventually(lambda: not serving.pods(), what="all processes have ended")
    final_phase, log = run_hook(serving, "test")
    assert final_phase == "Failed"
    assert "Are its pods ready?" in log, log


def test_the_test_has_no_other_permissions(serving: Installation) -> None:
    _, account = prepare_hook(serving, "test")
    client = serving.plane.client(serving.plane.token(account, serving.namespace))
    own = f"/api/v1/namespaces/{serving.namespace}"
    for path in (
        f"{own}/secrets/gpuward-ca",
        f"{own}/pods",
        f"{ADMISSION}/{ConfigurationKind.MUTATING.value}",
    ):
        assert client.request("GET", path).status == 403, path
    other = f"{ADMISSION}/{ConfigurationKind.MUTATING.value}/another"
    assert client.request("DELETE", other).status == 403
    own_configuration = f"{ADMISSION}/{ConfigurationKind.MUTATING.value}/gpuward"
    assert (
        client.request(
            "PATCH", own_configuration, FOREIGN_WEBHOOK, content_type=CONTENT_TYPE
        ).status
        == 403
    )
    assert client.request("DELETE", own_configuration).status == 403
