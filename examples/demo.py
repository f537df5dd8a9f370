"""The main job in three commands, on the examples beside this file: `make demo`."""

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
    """Run the commands; findings are expected, anything else is a failure."""
    for question, arguments in COMMANDS:
        sys.stdout.write(f"\n# {question}\n$ gpuward {' '.join(arguments)}\n\n")
        sys.stdout.flush()
        done = subprocess.run([sys.executable, "-m", "gpuward", *arguments], cwd=ROOT, check=False)
        if done.returncode not in {0, 1}:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
