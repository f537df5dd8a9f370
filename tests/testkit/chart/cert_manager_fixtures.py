"""The real cert-manager with the control plane of the chart's tests: a pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.control_plane.plane import ControlPlane


@pytest.fixture(scope="module")
def cert_manager(
    chart_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CertManager]:
    """cert-manager, running for the tests of a module."""
    with CertManager(chart_plane, tmp_path_factory.mktemp("cert-manager")) as running:
        yield running
