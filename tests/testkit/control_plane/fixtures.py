"""Fixtures for tests that need a control plane: a pytest plugin.

Tests that use one of them get the mark `control_plane`, with which such tests can be selected.
With pytest-xdist (`--dist loadgroup`) they run in one process, so that only one control plane runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.control_plane.build import Programs, chart_tools, krew, programs, report_kinds
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.flags import TYPE_CHECKER
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.servers import ALWAYS, CONTROLLERS
from tests.testkit.control_plane.sources import CHART_LINTER, CHART_TOOLS
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.custom_kinds import define_kinds
from tests.testkit.skipping import skip_missing


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "control_plane: needs a real Kubernetes control plane")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a control plane."""
    for item in items:
        if "control_plane_programs" in getattr(item, "fixturenames", ()):
            item.add_marker("control_plane")
            item.add_marker(pytest.mark.xdist_group("control_plane"))


@pytest.fixture(scope="session")
def control_plane_programs(request: pytest.FixtureRequest) -> Programs:
    """The programs of the release to test; skips the test if they cannot be built."""
    if not any(item.get_closest_marker("control_plane") for item in request.session.items):
        pytest.fail(
            "a test without the mark `control_plane` started a control plane: add "
            '`pytestmark = pytest.mark.usefixtures("api_server")` to its module'
        )
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter:
        reporter.write_line("\nLooking for the control plane; the first build takes minutes")
    try:
        found = programs()
        for name in (*ALWAYS, "kubectl"):
            _ = found[name]
    except BuildError as error:
        skip_missing(str(error))
    return found


@pytest.fixture(scope="session", name="chart_tools")
def built_chart_tools() -> Programs:
    """helm-docs, promtool, kube-score and the `crds`; skips the test if they cannot be built."""
    try:
        found = chart_tools()
        for name in (*CHART_TOOLS.packages, *CHART_LINTER.packages):
            _ = found[name]
    except BuildError as error:
        skip_missing(str(error))
    return found


@pytest.fixture(scope="session", name="krew")
def built_krew() -> Path:
    """The program krew; skips the test if it cannot be built."""
    try:
        return krew()
    except BuildError as error:
        skip_missing(str(error))


@pytest.fixture(scope="session")
def plane(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane that all tests share; each test creates a namespace of its own.

    All controllers run but the one that checks the types of policies.
    """
    folder = tmp_path_factory.mktemp("plane")
    without = (TYPE_CHECKER,)
    try:
        with ControlPlane(
            control_plane_programs, folder=folder, without_controllers=without
        ) as started:
            yield started
    except BuildError as error:
        skip_missing(str(error))


@pytest.fixture(scope="session")
def api_server(
    request: pytest.FixtureRequest,
    control_plane_programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """For tests without controllers: `plane`, or only an API server if there are no controllers."""
    if control_plane_programs.has(*CONTROLLERS):
        yield request.getfixturevalue("plane")
        return
    folder = tmp_path_factory.mktemp("api-server")
    try:
        with ControlPlane(control_plane_programs, folder=folder, controllers=False) as started:
            yield started
    except BuildError as error:
        skip_missing(str(error))


@pytest.fixture(scope="session")
def chart_kinds(api_server: Cluster, chart_tools: Programs) -> Cluster:
    """`api_server` with the kinds of the Prometheus Operator and of cert-manager."""
    define_kinds(api_server, chart_tools.crds)
    return api_server


@pytest.fixture(scope="session")
def report_definitions() -> list[Path]:
    """The files with the definitions of PolicyReports and OpenReports; skips the test without."""
    try:
        files = report_kinds().crds
    except BuildError as error:
        skip_missing(str(error))
    if not files:
        skip_missing("the definitions of PolicyReports are not in KUBEBUILDER_ASSETS")
    return files
