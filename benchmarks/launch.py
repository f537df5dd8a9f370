"""Runs a module on one core, and with nothing but the standard library's codec and loop if told so.

Used as `launch.py CORE plain|quick MODULE ARGUMENT...`.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

EXTRAS = ("orjson", "uvloop")


def main() -> None:
    """Become that module."""
    core, variant, module = sys.argv[1:4]
    os.sched_setaffinity(0, {int(core)})
    if variant == "plain":
        # Not to be imported, as if they were not installed.
        sys.modules.update(dict.fromkeys(EXTRAS))  # type: ignore[arg-type]
    # Instead of this folder, whose modules would hide others of the same name.
    sys.path[0] = str(Path(__file__).parents[1])
    sys.argv[:] = [module, *sys.argv[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
