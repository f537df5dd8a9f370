"""Argo CD with the control plane of the chart's tests: a pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.chart.argo_cd import ArgoCD
from tests.testkit.control_plane.plane import ControlPlane


@pytest.fixture(scope="module")
def argo_cd(
    chart_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ArgoCD]:
    """Argo CD, running for the tests of a module."""
    with ArgoCD(chart_plane, tmp_path_factory.mktemp("argo-cd")) as running:
        yield running
