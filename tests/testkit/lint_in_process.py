"""Runs `gpuward lint` and `gpuward fix` in this process: a process takes most of the time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lint import cli
from tests.testkit.lint_command import LintCommand, Outcome


class LintInProcess(LintCommand):
    """The command without a process of its own."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(folder)
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, verb: str, *arguments: str, stdin: str = "") -> Outcome:
        """`gpuward VERB ARGUMENTS` in the folder."""
        self._monkeypatch.chdir(self.folder)
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = cli.main(list(arguments), prog=f"gpuward {verb}")
        return Outcome(status, *self._capsys.readouterr())
