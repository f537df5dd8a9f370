"""Runs `gpuward` as if a package were not installed."""

from __future__ import annotations

import subprocess
import sys

from tests.testkit.paths import ROOT

PROGRAM = """\
import importlib.abc, importlib.metadata, sys
from gpuward.__main__ import main
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
# As if it were installed from a registry, and not from a clone.
importlib.metadata.PathDistribution.read_text = lambda *_: None
sys.exit(main({arguments!r}))
"""


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `gpuward ARGUMENTS` in a Python that cannot import `module`."""
    program = PROGRAM.format(module=module, arguments=list(arguments))
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
