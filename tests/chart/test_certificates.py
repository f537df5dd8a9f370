"""Each certificate mode by itself: installed, renewed, upgraded, and off again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from certs.pki.keypairs import KeyPair, parse_certificates
from tests.testkit.admission.continuous_caller import Unbroken
from tests.testkit.admission.enforcement import treatment
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.certificate_modes import (
    fill_secret,
    new_signer,
    objects,
    trusted,
    values,
    wait_for_pods,
)
from tests.testkit.chart.installation import CHART, Installed, merged
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures", "tests.testkit.chart.cert_manager_fixtures"]


@pytest.fixture(scope="module", params=["helm3", "helm4"])
def by_cert_manager(
    request: pytest.FixtureRequest,
    chart_plane: ControlPlane,
    kubelet: Kubelet,
    cert_manager: CertManager,
) -> Iterator[Installed]:
    """An installation with certificates by cert-manager."""
    with Installed(chart_plane, kubelet, request.param) as installed:
        installed.install(values("certManager"))
        cert_manager.authority("gpuward", installed.namespace)
        yield installed


@pytest.fixture(scope="module")
def by_secret(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[tuple[Installed, KeyPair]]:
    """An installation with a given Secret, and who signs what is in it."""
    with Installed(chart_plane, kubelet, "helm4") as installed:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installed.namespace, {}))
        signer = new_signer(installed)
        fill_secret(installed, signer)
        installed.install(values("existingSecret", signer.certificate_pem))
        yield installed, signer


def enforced_namespace(installed: Installed) -> str:
    """A namespace in which it has been seen that nobody gets round the webhook."""
    namespace = installed.plane.namespace()
    eventually(lambda: treatment(installed.plane, namespace) == "enforced", what="it is in force")
    return namespace


def processes(installed: Installed) -> set[int]:
    """The processes that serve."""
    return {pod.process_id for pod in installed.pods()}


def test_cert_managers_authority_is_injected_and_its_certificate_served(
    by_cert_manager: Installed, cert_manager: CertManager
) -> None:
    enforced_namespace(by_cert_manager)
    wait_for_pods(by_cert_manager, "certManager")
    made = cert_manager.authority("gpuward", by_cert_manager.namespace)
    assert trusted(by_cert_manager) == set(parse_certificates(made))


@pytest.mark.parametrize("renewed", [("gpuward",), ("gpuward-authority", "gpuward")])
def test_what_cert_manager_renews_is_taken_without_a_restart(
    by_cert_manager: Installed, cert_manager: CertManager, renewed: tuple[str, ...]
) -> None:
    before, running = trusted(by_cert_manager), processes(by_cert_manager)
    with Unbroken(by_cert_manager, enforced_namespace(by_cert_manager)) as calls:
        for certificate in renewed:
            cert_manager.renew(certificate, by_cert_manager.namespace)
        wait_for_pods(by_cert_manager, "certManager")
        calls.goes_on()
    made = cert_manager.authority("gpuward", by_cert_manager.namespace)
    # What was trusted stays so: the injector only adds.
    assert trusted(by_cert_manager) == before | set(parse_certificates(made))
    assert len(trusted(by_cert_manager)) == len(before) + len(renewed) - 1
    assert processes(by_cert_manager) == running


def test_a_higher_floor_takes_webhooks_away(by_cert_manager: Installed) -> None:
    floor = merged(values("certManager"), {"minimumMode": "deny"})
    if by_cert_manager.program == "helm4":
        # The injector applies each webhook, and so holds on to it.
        done = by_cert_manager.upgrade(floor, check=False)
        assert done.returncode
        assert "webhooks[1].sideEffects: Required value" in done.stderr
        assert len(by_cert_manager.webhooks()) == 9
        options = ("--server-side=false", "--wait", "--timeout=100s")
        by_cert_manager.helm("upgrade", str(CHART), *options, values=floor)
    else:
        by_cert_manager.upgrade(floor)
    assert len(by_cert_manager.webhooks()) == 3
    enforced_namespace(by_cert_manager)


def test_uninstalled_nothing_of_cert_managers_is_left(by_cert_manager: Installed) -> None:
    assert "Secret/gpuward-cert-manager-ca" in objects(by_cert_manager)
    by_cert_manager.uninstall()
    eventually(lambda: objects(by_cert_manager) == set(), what="it is gone")


def test_a_given_secret_is_served_and_its_authority_trusted(
    by_secret: tuple[Installed, KeyPair],
) -> None:
    installed, signer = by_secret
    enforced_namespace(installed)
    wait_for_pods(installed, "existingSecret")
    assert trusted(installed) == {signer.certificate}


def test_what_is_put_into_a_given_secret_is_taken_without_a_restart(
    by_secret: tuple[Installed, KeyPair],
) -> None:
    installed, signer = by_secret
    running = processes(installed)
    with Unbroken(installed, enforced_namespace(installed)) as calls:
        fill_secret(installed, signer)
        wait_for_pods(installed, "existingSecret")
        calls.goes_on()
    assert processes(installed) == running
