"""The control plane of the node: its Services have addresses that pods can reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.admission.registered_webhook import registered_server
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.real_node.isolation import SERVICES
from tests.testkit.real_node.node import API_SERVER_FLAGS


@pytest.fixture(scope="session")
def plane(
    request: pytest.FixtureRequest,
    control_plane_programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """A complete control plane for the node."""
    request.getfixturevalue("real_node_programs")
    folder = tmp_path_factory.mktemp("plane")
    with ControlPlane(
        control_plane_programs,
        folder=folder,
        services=SERVICES,
        api_server_flags=API_SERVER_FLAGS,
    ) as started:
        yield started


@pytest.fixture(scope="module")
def server(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A registered server, for modules that do not install the chart."""
    processes = Processes(tmp_path_factory.mktemp("servers"))
    try:
        with registered_server(plane, processes, tmp_path_factory.mktemp("gpuward")) as serving:
            yield serving
    finally:
        processes.stop()
