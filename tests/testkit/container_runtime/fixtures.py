"""The fixture `node`: NVIDIA's container runtime on a node with three GPUs. A pytest plugin.

Tests that use it get the marks `container_runtime` and `slow`. Without root, Go or a C compiler
they are skipped with a line that says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.testkit.container_runtime.node import Container, Node, Settings
from tests.testkit.container_runtime.programs import TOOLKITS, runc, toolkit, toolkit_answers
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.skipping import skip_missing


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "container_runtime: starts containers, as root")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start containers."""
    for item in items:
        if {"node", "container_programs"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("container_runtime")
            item.add_marker("slow")
            item.add_marker(pytest.mark.xdist_group("container_runtime"))


@pytest.fixture(scope="session")
def container_programs() -> None:
    """The programs of a node; skips the test if they cannot be built, or without root."""
    if os.geteuid():
        skip_missing("only root can start containers")
    try:
        runc()
        for version in TOOLKITS:
            toolkit(version)
            toolkit_answers(version)
    except BuildError as error:
        skip_missing(str(error))


@pytest.fixture(scope="session")
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """A node; skips the test where runc cannot start a container."""
    request.getfixturevalue("container_programs")
    started = Node(tmp_path_factory.mktemp("node"))
    try:
        answer = started.ask(Container(), Settings())
        if answer.error:
            skip_missing(f"runc cannot start containers here: {answer.error}")
        yield started
    finally:
        started.stop()
