"""The fixture `real_node`: a node with three GPUs. A pytest plugin.

Tests that use it get the marks `real_node` and `slow`, and are skipped outside of the namespaces of
`isolation.py`: `make test-node` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.real_node.isolation import is_isolated
from tests.testkit.real_node.node import RealNode, all_gpus
from tests.testkit.real_node.programs import programs
from tests.testkit.skipping import skip_missing


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "real_node: runs the real kubelet, as root")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the node."""
    for item in items:
        if "real_node" in getattr(item, "fixturenames", ()):
            item.add_marker("real_node")
            item.add_marker("slow")


@pytest.fixture(scope="session")
def real_node_programs() -> None:
    """The programs of a node; skips the test if they cannot be built or run here."""
    if not is_isolated():
        skip_missing("a node runs only in namespaces of its own: use `make test-node`")
    try:
        programs()
    except BuildError as error:
        skip_missing(str(error))


@pytest.fixture(scope="session")
def real_node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealNode]:
    """A node that offers its three GPUs as `nvidia.com/gpu`."""
    request.getfixturevalue("real_node_programs")
    plane: ControlPlane = request.getfixturevalue("plane")
    with RealNode(plane, tmp_path_factory.mktemp("node")) as node:
        node.offer([all_gpus()])
        yield node
