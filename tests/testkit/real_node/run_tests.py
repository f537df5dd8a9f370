"""Runs the tests of the node in namespaces of their own; where that cannot be, says why.

    python -m tests.testkit.real_node.run_tests [ARGUMENT OF PYTEST…]

As other tests they are skipped where something is missing, and fail with GPUWARD_NO_SKIPS=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.real_node import isolation
from tests.testkit.real_node.gpuward_image import ROOT_VARIABLE, build
from tests.testkit.real_node.programs import programs

# As in the Makefile: a test that fails runs once more.
_OPTIONS = ["--reruns", "1", "-raR"]
# With a broken node every test fails, each after minutes.
_OPTIONS += ["--maxfail", "3"]
_NO_TEST_SELECTED = 5  # pytest's exit status


def main(arguments: list[str]) -> int:
    """Run the tests; the exit status."""
    if why := isolation.obstacle() or _missing():
        sys.stderr.write(f"the tests of the node are skipped: {why}\n")
        return 1 if os.environ.get("GPUWARD_NO_SKIPS") else 0
    with tempfile.TemporaryDirectory(prefix="gpuward-image-") as root:
        build(Path(root))
        os.environ[ROOT_VARIABLE] = root
        pytest = [sys.executable, "-m", "pytest", "-q", "-m", "real_node", *_OPTIONS, *arguments]
        status = subprocess.run([*isolation.COMMAND, *pytest], check=False).returncode
    return 0 if status == _NO_TEST_SELECTED else status


def _missing() -> str:
    try:
        programs()
    except BuildError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
