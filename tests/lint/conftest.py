"""Fixtures of the tests of the linter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.lint_command import LintCommand
from tests.testkit.lint_in_process import LintInProcess


@pytest.fixture
def command(tmp_path: Path) -> LintCommand:
    """`gpuward lint` as a program, in an empty folder."""
    return LintCommand(tmp_path)


@pytest.fixture
def in_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> LintCommand:
    """The same in this process."""
    return LintInProcess(tmp_path, capsys, monkeypatch)
