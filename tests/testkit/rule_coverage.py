"""Pauses the measurement of coverage while tests run that add nothing to it.

A pytest plugin. It does something only under `coverage run`, which makes tests take up to ten times
as long.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from tests.testkit.paths import ROOT

#: Folders and files of tests that reach few rules, or those that other tests reach as well
PAUSED = (
    *("certs/", "chart/", "cluster/", "delegation/", "kubeyaml/", "registration/", "release/"),
    "webhook/test_heavy_objects.py",
)


class _Measurement:
    """Stops `coverage` before such tests, and starts it again before others."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self._runs = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        counts = not item.path.relative_to(ROOT / "tests").as_posix().startswith(PAUSED)
        if counts and not self._runs:
            with warnings.catch_warnings():
                # It warns of modules that were imported before: while it measured.
                warnings.simplefilter("ignore")
                self._coverage.start()
        elif self._runs and not counts:
            self._coverage.stop()
        self._runs = counts


def pytest_configure(config: pytest.Config) -> None:
    """Find the measurement that runs, if one does."""
    current = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if current is not None:
        config.pluginmanager.register(_Measurement(current))
