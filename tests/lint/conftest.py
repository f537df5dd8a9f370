"""Fixtures of the tests of the linter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.lint_command import LintCommand
from tests.testkit.lint_in_process import LintInProcess


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> LintCommand:
    """`gpuward lint` in this process, in an empty folder."""
    return LintInProcess(tmp_path, capsys, monkeypatch)


@pytest.fixture
def as_program(tmp_path: Path) -> LintCommand:
    """`gpuward lint` as a program, for tests of what only a process has."""
    return LintCommand(tmp_path)
