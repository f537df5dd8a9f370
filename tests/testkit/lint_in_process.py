"""Runs the commands of the linter in this process: to start another takes most of the time."""

from __future__ import annotations

import io
import os
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest

from gpuward.commands import COMMANDS
from tests.testkit.lint_command import LintCommand, Outcome


def _standard_input(text: str) -> io.TextIOWrapper:
    stream: io.RawIOBase = io.BytesIO(text.encode())  # type: ignore[assignment]  # reads like one
    return io.TextIOWrapper(io.BufferedReader(stream))


class LintInProcess(LintCommand):
    """The command without a process of its own; its environment has nothing but PATH."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(folder)
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, verb: str, *arguments: str, stdin: str = "") -> Outcome:
        """`gpuward VERB ARGUMENTS` in the folder."""
        self._monkeypatch.chdir(self.folder)
        self._monkeypatch.setattr("sys.stdin", _standard_input(stdin))
        with patch.dict(os.environ, {"PATH": self.path}, clear=True):
            try:
                module, _, function = COMMANDS[verb][0].partition(":")
                status = getattr(import_module(module), function or "main")(list(arguments))
            except SystemExit as error:  # of argparse
                status = int(error.code or 0)
        return Outcome(status, *self._capsys.readouterr())
