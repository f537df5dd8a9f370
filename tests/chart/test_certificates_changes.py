"""Changes from each certificate mode to each other, while pods are created: no request fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.admission.continuous_caller import ContinuousCaller
from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.certificate_mode_changes import ModeChanger
from tests.testkit.chart.certificate_modes import (
    release_objects,
    trusted_authorities,
    wait_for_pods,
)
from tests.testkit.chart.installation import Installation
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures", "tests.testkit.chart.cert_manager_fixtures"]

# Starting in mode `self`. With Helm 4, each change once. With Helm 3, only the changes after which
# Helm could remove the caBundle of its previous manifest before the controller reconciles again.
MODE_SEQUENCES = {
    "helm4": ("certManager", "existingSecret", "self", "existingSecret", "certManager", "self"),
    "helm3": ("existingSecret", "self"),
    # Helm 4 goes on with a release of Helm 3.
    "helm3-then-helm4": ("existingSecret", "self"),
}
COMMON_OBJECTS = {"Deployment/gpuward", "ServiceAccount/gpuward"}
WATCH_OBJECTS = {
    "Deployment/gpuward-watch",
    "ServiceAccount/gpuward-watch",
    "Role/gpuward-watch",
}
CERT_MANAGER_SECRETS = {"Secret/gpuward-cert-manager-ca", "Secret/gpuward-cert-manager-tls"}
MODE_OBJECTS = {
    "self": {
        "Deployment/gpuward-certs",
        "ServiceAccount/gpuward-certs",
        "Role/gpuward-certs",
    },
    "certManager": WATCH_OBJECTS
    | {
        "Certificate/gpuward",
        "Certificate/gpuward-authority",
        "Issuer/gpuward",
        "Issuer/gpuward-self-signed",
    },
    "existingSecret": WATCH_OBJECTS,
}


@pytest.mark.parametrize("helm", MODE_SEQUENCES)
def test_no_request_fails_and_no_object_of_the_old_mode_is_left(
    chart_plane: ControlPlane,
    kubelet: Kubelet,
    cert_manager: CertManager,
    tmp_path: Path,
    helm: str,
) -> None:
    first, _, second = helm.partition("-then-")
    with Installation(chart_plane, kubelet, second or first) as installation:
        installed_by = first if second else ""
        changer = ModeChanger(installation, cert_manager, tmp_path, installed_by=installed_by)
        namespace = chart_plane.namespace()
        eventually(
            lambda: enforcement_in(chart_plane, namespace) == "enforced",
            what="the webhook enforces",
        )
        with ContinuousCaller(installation, namespace) as caller:
            for mode in MODE_SEQUENCES[helm]:
                caller.wait_for_calls()
                check_mode_change(changer, mode)
                caller.wait_for_calls()
        assert bool(changer.conflicts) == (helm == "helm4")


def check_mode_change(changer: ModeChanger, mode: str) -> None:
    """Change the mode, then upgrade without a change of the mode, and check both."""
    installation = changer.installation
    before = trusted_authorities(installation)
    changer.change(mode)
    after = trusted_authorities(installation)
    assert len(after) == 1
    assert not after & before
    changer.upgrade_in_mode()
    assert trusted_authorities(installation) == after
    wait_for_pods(installation, mode)
    expected = COMMON_OBJECTS | MODE_OBJECTS[mode]

    def only_the_modes_objects() -> bool:
        # cert-manager leaves its Secrets, as it always does.
        found = release_objects(installation) - CERT_MANAGER_SECRETS
        assert found == expected, f"too many or too few: {sorted(found ^ expected)}"
        return True

    eventually(only_the_modes_objects, seconds=100, what="the old objects are gone")
    if mode != "certManager":  # as the manual says it
        for secret in CERT_MANAGER_SECRETS & release_objects(installation):
            installation.plane.kubectl("delete", secret, "-n", installation.namespace)
