"""docs/coverage.md holds with the chart, whose matchConditions keep most pods from gpuward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.admission.enforcement import treatment
from tests.testkit.chart.installation import PATIENT, Installed, merged
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.coverage.fixtures import EVERY, runtime_classes
from tests.testkit.coverage.observed import admitted
from tests.testkit.coverage.table import Channel

pytest_plugins = ["tests.testkit.chart.fixtures"]
__all__ = ["runtime_classes"]


@pytest.fixture(scope="module")
def plane(chart_plane: ControlPlane) -> ControlPlane:
    """For `runtime_classes`: the chart's control plane and not that of other tests."""
    return chart_plane


@pytest.fixture(scope="module")
def judged(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[str]:
    """A namespace like any other, in an installation in mode deny."""
    with Installed(chart_plane, kubelet, "helm4") as installed:
        installed.install(merged(PATIENT, {"mode": "deny"}))
        entries = installed.webhooks()
        assert "matchConditions" in entries["pods.deny.gpuward.io"]
        assert "matchConditions" in entries["deny.gpuward.io"]
        namespace = chart_plane.namespace()
        eventually(lambda: treatment(chart_plane, namespace) == "enforced", what="it is in force")
        yield namespace


@pytest.mark.usefixtures("runtime_classes")
@EVERY
def test_pods(chart_plane: ControlPlane, judged: str, channel: Channel) -> None:
    assert admitted(chart_plane, judged, channel, "Pod") == channel.cell("pods", "nvidia")
