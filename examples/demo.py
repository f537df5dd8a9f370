"""Run three commands of the linter on the examples in this folder: `make demo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = (
    ("What is wrong with these manifests?", ["lint", "examples"]),
    ("What would a fix do to them?", ["lint", "--diff", "examples"]),
    (
        "Which JSON Patch would admission send for the Pod that overrides its own GPU?",
        ["lint", "--patch", "examples/bypass.yaml"],
    ),
)


def main() -> int:
    """Run the commands, and return the exit status: 0, or that of a command that failed.

    Status 1 of a command means findings, which the examples have.
    """
    for question, arguments in COMMANDS:
        sys.stdout.write(f"\n# {question}\n$ gpuward {' '.join(arguments)}\n\n")
        sys.stdout.flush()
        process = subprocess.run(
            [sys.executable, "-m", "gpuward", *arguments], cwd=ROOT, check=False
        )
        if process.returncode not in {0, 1}:
            return process.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
