"""Each certificate mode: installation, renewal, upgrade and removal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from certs.keypairs import KeyPair, parse_certificates
from tests.testkit.admission.continuous_caller import ContinuousCaller
from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.certificate_modes import (
    fill_secret,
    new_signer,
    release_objects,
    trusted_authorities,
    values,
    wait_for_pods,
)
from tests.testkit.chart.installation import CHART, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

pytest_plugins = ["tests.testkit.chart.fixtures", "tests.testkit.chart.cert_manager_fixtures"]


@pytest.fixture(scope="module", params=["helm3", "helm4"])
def by_cert_manager(
    request: pytest.FixtureRequest,
    chart_plane: ControlPlane,
    kubelet: Kubelet,
    cert_manager: CertManager,
) -> Iterator[Installation]:
    """An installation with certificates of cert-manager."""
    with Installation(chart_plane, kubelet, request.param) as installation:
        installation.install(values("certManager"))
        cert_manager.authority("gpuward", installation.namespace)
        yield installation


@pytest.fixture(scope="module")
def by_secret(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> Iterator[tuple[Installation, KeyPair]]:
    """An installation in mode `existingSecret`, and the authority that signs its certificate."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        signer = new_signer(installation)
        fill_secret(installation, signer)
        installation.install(values("existingSecret", signer.certificate_pem))
        yield installation, signer


def enforced_namespace(installation: Installation) -> str:
    """A new namespace, after the webhook has been observed to enforce there."""
    namespace = installation.plane.namespace()
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces",
    )
    return namespace


def processes(installation: Installation) -> set[int]:
    """The process IDs of the webhook's pods."""
    return {pod.process_id for pod in installation.pods()}


def test_cert_managers_authority_is_injected_and_its_certificate_served(
    by_cert_manager: Installation, cert_manager: CertManager
) -> None:
    enforced_namespace(by_cert_manager)
    wait_for_pods(by_cert_manager, "certManager")
    made = cert_manager.authority("gpuward", by_cert_manager.namespace)
    assert trusted_authorities(by_cert_manager) == set(parse_certificates(made))


@pytest.mark.parametrize("renewed", [("gpuward",), ("gpuward-authority", "gpuward")])
def test_a_renewed_certificate_of_cert_manager_is_loaded_without_a_restart(
    by_cert_manager: Installation,
    cert_manager: CertManager,
    kubelet: Kubelet,
    renewed: tuple[str, ...],
) -> None:
    before, running = trusted_authorities(by_cert_manager), processes(by_cert_manager)
    with ContinuousCaller(by_cert_manager, enforced_namespace(by_cert_manager)) as caller:
        # The injector takes seconds, and a kubelet a minute or two to show a pod its new Secret.
        with kubelet.holding_volumes():
            for certificate in renewed:
                cert_manager.renew(certificate, by_cert_manager.namespace)
            made = cert_manager.authority("gpuward", by_cert_manager.namespace)
            authorities = set(parse_certificates(made))
            eventually(
                lambda: authorities <= trusted_authorities(by_cert_manager),
                what="the injector adds the authority",
            )
        wait_for_pods(by_cert_manager, "certManager")
        caller.wait_for_calls()
    # The injector only adds authorities: the old ones stay trusted.
    assert trusted_authorities(by_cert_manager) == before | authorities
    assert len(trusted_authorities(by_cert_manager)) == len(before) + len(renewed) - 1
    assert processes(by_cert_manager) == running


def test_a_higher_minimum_mode_removes_webhooks(by_cert_manager: Installation) -> None:
    higher = merge_values(values("certManager"), {"minimumMode": "deny"})
    if by_cert_manager.program == "helm4":
        # The injector has applied every webhook, so Helm alone cannot remove one.
        done = by_cert_manager.upgrade(higher, check=False)
        assert done.returncode
        assert "webhooks[1].sideEffects: Required value" in done.stderr
        assert len(by_cert_manager.webhooks()) == 9
        options = ("--server-side=false", "--wait", TIMEOUT)
        by_cert_manager.helm("upgrade", str(CHART), *options, values=higher)
    else:
        by_cert_manager.upgrade(higher)
    assert len(by_cert_manager.webhooks()) == 3
    enforced_namespace(by_cert_manager)


def test_uninstalling_leaves_only_the_secrets_of_cert_manager(
    by_cert_manager: Installation,
) -> None:
    by_cert_manager.uninstall()
    secrets = {"Secret/gpuward-cert-manager-ca", "Secret/gpuward-cert-manager-tls"}
    eventually(lambda: release_objects(by_cert_manager) == secrets, what="all else is gone")


def test_a_given_secret_is_served_and_its_authority_trusted(
    by_secret: tuple[Installation, KeyPair],
) -> None:
    installation, signer = by_secret
    enforced_namespace(installation)
    wait_for_pods(installation, "existingSecret")
    assert trusted_authorities(installation) == {signer.certificate}


def test_a_changed_secret_is_loaded_without_a_restart(
    by_secret: tuple[Installation, KeyPair],
) -> None:
    installation, signer = by_secret
    running = processes(installation)
    with ContinuousCaller(installation, enforced_namespace(installation)) as caller:
        fill_secret(installation, signer)
        wait_for_pods(installation, "existingSecret")
        caller.wait_for_calls()
    assert processes(installation) == running
