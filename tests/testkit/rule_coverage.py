"""Measures the coverage of the rules only while tests run that are about what single rules do.

A pytest plugin. It does something only under `coverage run`, with which tests take two to forty
times as long. So all tests that repeat what others have shown, over every case or with random
objects, run without it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from typing import Any

import pytest

import rules
from tests.testkit.paths import ROOT

#: Tests that count, by the start of their names below `tests/`
MEASURED = (
    "lint/test_container_files.py",
    "lint/test_custom_kinds.py",
    "lint/test_inventory.py",
    "lint/test_misplaced_pods.py",
    "policies/test_gpu_exceptions.py",
    "policies/test_policy.py",
    "rules/",
    "webhook/test_decider.py",
    "webhook/test_export.py",
    "webhook/test_inventory.py",
    "webhook/test_workload_refusals.py",
)
#: Those of them that do not: each takes long, with objects at random or with all cases
PAUSED = (
    "rules/test_enforced_affinity.py",
    "rules/test_fix_safety.py",
    "rules/test_invariants.py::test_checking_and_fixing_create_no_reference_cycles",
    "rules/test_inventory.py::test_an_inventory_only_adds_findings",
    "rules/test_object_robustness.py",
    "rules/test_views_after_edits.py",
    "rules/test_robustness.py",
)
#: The one test that counts of those that run for every case
GOLDEN = "test_a_case_gets_its_golden_result"


def counts(item: pytest.Item) -> bool:
    """Return whether a test counts."""
    name = f"{item.path.relative_to(ROOT / 'tests').as_posix()}::{item.name}"
    if not name.startswith(MEASURED) or name.startswith(PAUSED):
        return False
    if item.name.startswith(GOLDEN):
        return True
    return {"case", "own_cases"}.isdisjoint(getattr(item, "fixturenames", ()))


class _Measurement:
    """Starts `coverage` before tests that count, and stops it before others."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        # Statements at the top level of a module run when it is imported first, by any module.
        for module in pkgutil.walk_packages(rules.__path__, "rules."):
            importlib.import_module(module.name)
        coverage.stop()
        self._runs = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        wanted = counts(item)
        if wanted and not self._runs:
            with warnings.catch_warnings():
                # It warns of modules that were imported before: while it measured.
                warnings.simplefilter("ignore")
                self._coverage.start()
        elif self._runs and not wanted:
            self._coverage.stop()
        self._runs = wanted


def pytest_configure(config: pytest.Config) -> None:
    """Find the measurement that runs, if one does."""
    current = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if current is not None:
        config.pluginmanager.register(_Measurement(current))
