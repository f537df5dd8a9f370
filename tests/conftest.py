"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.testkit.paths import ROOT
from tests.testkit.settled_rules import choose_rules
from tests.testkit.skipping import skip_missing

# How long an example takes depends on the machine, and no test may depend on that.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

pytest_plugins: tuple[str, ...] = ("tests.testkit.rule_coverage",)
# Where only the tests of the linter run, such as on Windows, these are not there.
if find_spec("aiohttp") and find_spec("fcntl"):
    pytest_plugins += (
        "tests.testkit.control_plane.fixtures",
        "tests.testkit.admission.registered_webhook",
        "tests.testkit.container_runtime.fixtures",
        "tests.testkit.real_node.fixtures",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collections, and leave them out of those that follow.

    The tests are hundreds of thousands of objects that stay until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Choose the rules for the policies that a module makes when it is imported."""
    if isinstance(collector, pytest.Module):
        choose_rules(collector.path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the rules for the policies that a test makes."""
    choose_rules(item.path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test that ran once more had failed: the cause is to be found, as of a failure."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"{report.nodeid} failed, and ran once more")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(autouse=True)
def structlog_defaults() -> Iterator[None]:
    """Undo a program's setting of the log, which is the whole process's and names a closed file."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of public GPU manifests; only developers and CI have it."""
    folder = Path(os.environ.get("GPUWARD_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not folder.is_dir():
        skip_missing("the corpus of public manifests is not here")
    return folder


@pytest.fixture(scope="session")
def git() -> str:
    """The git command."""
    found = shutil.which("git")
    if found is None:
        skip_missing("git is not installed")
    return found
