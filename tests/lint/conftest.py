"""Fixtures of the tests of the linter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.lint_command import LintCommand


@pytest.fixture
def command(tmp_path: Path) -> LintCommand:
    """`gpuward lint` as a program, in an empty folder."""
    return LintCommand(tmp_path)
