"""Runs `gpuward lint` and `gpuward fix` as users do: as programs, in a folder with files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.testkit.paths import ROOT

# Without it, no program of Windows begins.
_SYSTEM = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}


class Outcome(NamedTuple):
    """The output of one run of the program, and its exit status."""

    status: int
    out: str
    errors: str

    @property
    def raw_out(self) -> bytes:
        """The output as bytes, with its line breaks as they are."""
        return self.out.encode()

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report."""
        report: dict[str, Any] = json.loads(self.out)
        return report

    @property
    def found(self) -> dict[str, str]:
        """The rules that found something, each with its level."""
        return {finding["rule"]: finding["level"] for finding in self.report["findings"]}


class LintCommand:
    """The program in `folder`; `path` is the PATH in which it finds other programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = ""
        (folder / ".git").mkdir(exist_ok=True)

    def write(self, name: str, text: str) -> Path:
        """Put a file into the folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def __call__(self, *arguments: str, stdin: str = "") -> Outcome:
        return self.run("lint", *arguments, stdin=stdin)

    def run(self, verb: str, *arguments: str, stdin: str = "") -> Outcome:
        """Another command, such as `fix`."""
        done = self.run_raw(verb, *arguments, stdin=stdin.encode())
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_raw(
        self, verb: str, *arguments: str, stdin: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        """Run another command with input and output as bytes, which need not be UTF-8."""
        return subprocess.run(
            [sys.executable, "-m", "gpuward", verb, *arguments],
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            check=False,
            env={"PYTHONPATH": str(ROOT), "PATH": self.path, **_SYSTEM},
        )

    def json(self, *arguments: str, stdin: str = "") -> Outcome:
        """Run `lint` with the JSON report."""
        return self("--output", "json", *arguments, stdin=stdin)
