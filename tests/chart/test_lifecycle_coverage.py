"""docs/coverage.md is true of the chart, whose matchConditions exclude most pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.coverage.fixtures import EVERY_BYPASS, runtime_classes
from tests.testkit.coverage.observed import admission_outcome
from tests.testkit.coverage.table import Bypass

pytest_plugins = ["tests.testkit.chart.fixtures"]
__all__ = ["runtime_classes"]


@pytest.fixture(scope="module")
def plane(chart_plane: ControlPlane) -> ControlPlane:
    """For `runtime_classes`: the control plane of the chart's tests."""
    return chart_plane


@pytest.fixture(scope="module")
def enforced_namespace(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[str]:
    """An ordinary namespace in a cluster where the chart is installed in mode deny."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(merge_values(SLOW_MACHINE, {"mode": "deny"}))
        entries = installation.webhooks()
        assert "matchConditions" in entries["pods.deny.gpuward.io"]
        assert "matchConditions" in entries["deny.gpuward.io"]
        namespace = chart_plane.namespace()
        eventually(
            lambda: enforcement_in(chart_plane, namespace) == "enforced",
            what="the webhook enforces",
        )
        yield namespace


@pytest.mark.usefixtures("runtime_classes")
@EVERY_BYPASS
def test_pods_are_treated_as_the_coverage_table_says(
    chart_plane: ControlPlane, enforced_namespace: str, bypass: Bypass
) -> None:
    assert admission_outcome(chart_plane, enforced_namespace, bypass, "Pod") == bypass.cell(
        "pods", "nvidia"
    )
