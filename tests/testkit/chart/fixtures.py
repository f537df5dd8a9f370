"""Fixtures for installations of the chart: a pytest plugin."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.testkit.chart.installation import Installed
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.skipping import missing


def may_listen(port: int) -> bool:
    """Whether this user may."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return False
        except OSError:  # somebody else does
            return True
    return True


@pytest.fixture(scope="session")
def chart_plane(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane for installations of the chart."""
    folder = tmp_path_factory.mktemp("chart-plane")
    try:
        for helm in ("helm3", "helm4"):
            _ = control_plane_programs[helm]
        if not may_listen(443):
            missing("nobody but root may listen at port 443, which the chart's Service has")
        with ControlPlane(control_plane_programs, folder=folder) as started:
            yield started
    except BuildError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def kubelet(
    chart_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubelet]:
    """The node of the chart's pods."""
    with Kubelet(chart_plane, tmp_path_factory.mktemp("kubelet")) as played:
        yield played


@pytest.fixture(scope="module", params=["helm3", "helm4"])
def installed(
    request: pytest.FixtureRequest, chart_plane: ControlPlane, kubelet: Kubelet
) -> Iterator[Installed]:
    """The tests of a module share one, each of the two helms in turn; nothing is installed yet."""
    with Installed(chart_plane, kubelet, request.param) as prepared:
        yield prepared
