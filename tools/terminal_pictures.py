"""Draw what commands print on a terminal, as the SVGs in docs/images.

    python -m tools.terminal_pictures [--check]

runs them on docs/example-cluster.yaml. With `--check`, it only reports the pictures that are stale.
The commands are real, and so is what they print, but for the seconds that they take.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.generated_file import write_or_compare
from tools.terminal_svg import draw

DOCS = Path(__file__).parents[1] / "docs"
CLUSTER = "example-cluster.yaml"
PICTURES = {
    "gpus": (f"gpuward gpus -f {CLUSTER}",),
    "gpus-cards": (f"gpuward gpus -d t4-1 dra-1 -f {CLUSTER}",),
    "audit": (f"gpuward audit -f {CLUSTER}",),
    "doctor": (f"gpuward doctor -f {CLUSTER}",),
    "init": (f"gpuward init -f {CLUSTER}", "cat gpuward.yaml"),
}
_SECONDS = re.compile(r"\d+\.\d\d s$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Draw the pictures, or compare them if `arguments` is `["--check"]`.

    Returns the exit status: 1 if a picture is stale.
    """
    stale = 0
    for name, commands in PICTURES.items():
        file = DOCS / "images" / f"{name}.svg"
        drawn = draw(list(_outputs(commands)))
        stale |= write_or_compare(file, drawn, arguments)
    return stale


def _outputs(commands: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each command, and what it prints; they run in one new folder, one after another."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "FORCE_COLOR": "1",
        "PYTHONUTF8": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(DOCS / CLUSTER, folder)
        for command in commands:
            done = subprocess.run(
                command.split(),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=False,
            )
            if done.returncode not in {0, 1, 3}:
                raise SystemExit(f"{command}: status {done.returncode}: {done.stdout}")
            yield command, _SECONDS.sub("0.20 s", done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
