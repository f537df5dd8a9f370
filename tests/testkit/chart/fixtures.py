"""Fixtures for installations of the chart: a pytest plugin."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.testkit.chart.installation import Installation
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.flags import TYPE_CHECKER
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.skipping import skip_missing


def may_listen(port: int) -> bool:
    """Return whether this user may listen at a port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return False
        except OSError:  # another process does: the user may
            return True
    return True


@pytest.fixture(scope="session")
def chart_plane(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane for installations of the chart; nothing checks the types of policies."""
    folder = tmp_path_factory.mktemp("chart-plane")
    try:
        for helm in ("helm3", "helm4"):
            _ = control_plane_programs[helm]
        if not may_listen(443):
            skip_missing("only root may listen at port 443, the port of the chart's Service")
        without = (TYPE_CHECKER,)
        with ControlPlane(
            control_plane_programs, folder=folder, without_controllers=without
        ) as plane:
            yield plane
    except BuildError as error:
        skip_missing(str(error))


@pytest.fixture(scope="session")
def kubelet(
    chart_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubelet]:
    """The node that runs the chart's pods."""
    with Kubelet(chart_plane, tmp_path_factory.mktemp("kubelet")) as running:
        yield running


@pytest.fixture(scope="module", params=["helm3", "helm4"])
def installation(
    request: pytest.FixtureRequest, chart_plane: ControlPlane, kubelet: Kubelet
) -> Iterator[Installation]:
    """One installation per module and helm version, shared by its tests; not installed yet."""
    with Installation(chart_plane, kubelet, request.param) as uninstalled:
        yield uninstalled
