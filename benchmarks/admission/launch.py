"""Run a module on one CPU core: `launch.py CORE|all plain|quick MODULE ARGUMENT...`.

With `plain`, the module uses the JSON codec and event loop of the standard library.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

EXTRAS = ("msgspec", "orjson", "uvloop")


def main() -> None:
    """Run the module as `__main__` in this process."""
    core, variant, module = sys.argv[1:4]
    if core != "all":
        os.sched_setaffinity(0, {int(core)})
    if variant == "plain":
        # None in sys.modules makes an import fail, as if the package was not installed.
        sys.modules.update(dict.fromkeys(EXTRAS))  # type: ignore[arg-type]
    # Replace this folder, whose modules would hide others with the same name.
    sys.path[0] = str(Path(__file__).parents[2])
    sys.argv[:] = [module, *sys.argv[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
