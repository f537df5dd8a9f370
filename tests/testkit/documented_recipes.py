"""The jq recipes of the documentation, run as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.testkit.paths import DOCS, ROOT
from tests.testkit.skipping import skip_missing

_BLOCK = re.compile(r"^ *```\w+\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^ *(?:\$ )?(.*\bjq -.*)$", re.MULTILINE)
# In place of the cluster: what it would print is in a file.
_KUBECTL = '#!/bin/sh\nexec cat "$(dirname "$0")/output"\n'


def recipes(page: str) -> list[str]:
    """The lines of a page of docs/ that use jq."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [line for block in _BLOCK.findall(text) for line in _LINE.findall(block)]


def recipe(page: str, part: str) -> str:
    """The only recipe of a page that contains `part`."""
    [found] = [line for line in recipes(page) if part in line]
    return found


def run_recipe(line: str, folder: Path, kubectl_prints: str = "") -> str:
    """The output of a recipe that runs in `folder`; an error of jq fails the test.

    What `kubectl` prints is given. `gpuward` is that of this checkout.
    """
    if shutil.which("jq") is None:
        skip_missing("jq is not installed")
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "output").write_text(kubectl_prints, encoding="utf-8")
    for name, text in (
        ("kubectl", _KUBECTL),
        ("gpuward", f'#!/bin/sh\nexec "{sys.executable}" -m gpuward "$@"\n'),
    ):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=folder,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "jq: error" not in done.stderr, done.stderr
    return done.stdout
