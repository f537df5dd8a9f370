"""From each certificate mode to each other one, while pods are created: no call fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.admission.continuous_caller import Unbroken
from tests.testkit.admission.enforcement import treatment
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.certificate_mode_changes import Changing
from tests.testkit.chart.certificate_modes import objects, trusted, wait_for_pods
from tests.testkit.chart.installation import Installed
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures", "tests.testkit.chart.cert_manager_fixtures"]

# From mode `self` on, each change once with Helm 4. With Helm 3 those after which it might take
# caBundle away with what was in its manifest before, while our controller looks but now and then.
WAYS = {
    "helm4": ("certManager", "existingSecret", "self", "existingSecret", "certManager", "self"),
    "helm3": ("existingSecret", "self"),
}
ALWAYS = {"Deployment/gpuward", "ServiceAccount/gpuward"}
MADE = {
    "self": {
        "Deployment/gpuward-certs",
        "ServiceAccount/gpuward-certs",
        "Role/gpuward-certs",
        "Lease/gpuward-certs",
        "Secret/gpuward-ca",
        "Secret/gpuward-tls",
    },
    "certManager": {
        "Certificate/gpuward",
        "Certificate/gpuward-authority",
        "Issuer/gpuward",
        "Issuer/gpuward-self-signed",
        "Secret/gpuward-cert-manager-ca",
        "Secret/gpuward-cert-manager-tls",
    },
    "existingSecret": set(),
}


@pytest.mark.parametrize("helm", WAYS)
def test_no_call_fails_and_nothing_of_the_old_mode_is_left(
    chart_plane: ControlPlane,
    kubelet: Kubelet,
    cert_manager: CertManager,
    tmp_path: Path,
    helm: str,
) -> None:
    with Installed(chart_plane, kubelet, helm) as installed:
        changing = Changing(installed, cert_manager, tmp_path)
        namespace = chart_plane.namespace()
        eventually(lambda: treatment(chart_plane, namespace) == "enforced", what="it is in force")
        with Unbroken(installed, namespace) as calls:
            for mode in WAYS[helm]:
                calls.goes_on()
                changes(changing, mode)
                calls.goes_on()
        assert bool(changing.conflicts) == (helm == "helm4")


def changes(changing: Changing, mode: str) -> None:
    """Change the mode, and then something else."""
    installed = changing.installed
    before = trusted(installed)
    changing.change(mode)
    after = trusted(installed)
    assert len(after) == 1
    assert not after & before
    changing.upgrade_within()
    assert trusted(installed) == after
    wait_for_pods(installed, mode)
    eventually(lambda: objects(installed) == ALWAYS | MADE[mode], what="the old objects are gone")
