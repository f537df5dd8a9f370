"""A hook of Hatch that puts the manual page and the completions of shells into the wheel.

It runs only where HATCH_BUILD_HOOK_ENABLE_CUSTOM is `true`, as in a release: it needs the packages
of requirements/distributions.txt, and users who install from Git should need no more than Hatch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMMAND_BY_FILE = {
    "share/man/man1/gpuward.1": ("manual",),
    "share/bash-completion/completions/gpuward": ("completion", "bash"),
    "share/zsh/site-functions/_gpuward": ("completion", "zsh"),
    "share/fish/vendor_completions.d/gpuward.fish": ("completion", "fish"),
}
"""The commands that print files, by the file below the prefix of an installation."""


class ManualAndCompletions(BuildHookInterface[Any]):
    """Writes the files into a folder, and adds them to the wheel's data."""

    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, unless the installation is editable."""
        if version == "editable":
            return
        self._require_every_command()
        self._folder = Path(tempfile.mkdtemp())
        for target, arguments in _COMMAND_BY_FILE.items():
            file = self._folder / "-".join(arguments)
            file.write_text(self._run("-m", "gpuward", *arguments), encoding="utf-8")
            build_data["shared_data"][str(file)] = target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        del version, build_data, artifact_path
        if self._folder:
            shutil.rmtree(self._folder)

    def _require_every_command(self) -> None:
        """Fail if a command's packages are missing: it would have no options in the files."""
        names = "n for n in commands.COMMANDS if parsers.command_parser(n) is None"
        code = f"from gpuward import commands, parsers; print(*({names}))"
        if missing := self._run("-c", code).strip():
            sys.exit(
                f"the packages of these commands are missing: {missing}. Install those of "
                "requirements/distributions.txt"
            )

    def _run(self, *arguments: str) -> str:
        """The output of Python in the folder of the project."""
        environment = {**os.environ, "PYTHONPATH": self.root}
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.root, env=environment, check=True, stdout=subprocess.PIPE
        )
        return done.stdout.decode()
