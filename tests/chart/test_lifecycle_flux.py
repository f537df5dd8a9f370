"""The chart as Flux releases it: nothing drifts, and what is lost is corrected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.flux import Flux
from tests.testkit.chart.installation import ADMISSION, ALL_COMPONENTS, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

WARN = merge_values(ALL_COMPONENTS, {"mode": "warn"})


@pytest.fixture
def installation(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    """An installation of its own for each test; not installed yet."""
    with Installation(chart_plane, kubelet, "helm4") as uninstalled:
        yield uninstalled


def _await(installation: Installation, expected: str) -> None:
    """Wait until the CA bundle is published, and pods are `enforced` or `warned`."""
    eventually(lambda: b"" not in installation.ca_bundles(), what="the CA bundle is published")
    namespace = installation.plane.namespace()
    plane = installation.plane
    eventually(lambda: enforcement_in(plane, namespace) == expected, what=f"pods are {expected}")


def test_nothing_drifts(installation: Installation) -> None:
    flux = Flux(installation)
    assert flux.install(ALL_COMPONENTS) == {
        "revision": 1,
        "status": "deployed",
        "applyMethod": "ssa",
    }
    _await(installation, "enforced")
    published = installation.ca_bundles()
    assert flux.drift() == []
    assert flux.upgrade(WARN) == {"revision": 2, "status": "deployed", "applyMethod": "ssa"}
    assert installation.ca_bundles() == published
    _await(installation, "warned")
    assert flux.drift() == []
    assert flux.rollback()["revision"] == 3
    assert installation.ca_bundles() == published
    _await(installation, "enforced")
    assert flux.drift() == []
    assert flux.uninstall()["status"] == "uninstalled"
    assert installation.webhooks() == {}


def test_a_deleted_configuration_is_corrected(installation: Installation) -> None:
    flux = Flux(installation)
    flux.install(ALL_COMPONENTS)
    _await(installation, "enforced")
    path = f"{ADMISSION}/mutatingwebhookconfigurations/gpuward"
    installation.plane.request("DELETE", path)
    (difference,) = flux.correct()
    assert (difference["kind"], difference["name"], difference["type"]) == (
        "MutatingWebhookConfiguration",
        "gpuward",
        "create",
    )
    _await(installation, "enforced")
    assert flux.drift() == []


def test_a_forced_upgrade_is_trusted_again_at_once(installation: Installation) -> None:
    flux = Flux(installation)
    assert flux.install(ALL_COMPONENTS, client_side=True)["applyMethod"] == "csa"
    _await(installation, "enforced")
    path = f"{ADMISSION}/mutatingwebhookconfigurations/gpuward"

    def changes() -> int:
        generation: int = installation.plane.request("GET", path).body["metadata"]["generation"]
        return generation

    before = changes()
    assert flux.upgrade(WARN, force=True)["applyMethod"] == "csa"
    _await(installation, "warned")
    # Helm has replaced it without its CA bundle, and the certificate controller has restored that.
    assert changes() == before + 2
    assert flux.drift() == []
