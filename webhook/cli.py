"""The command `gpuward serve`, as far as it goes without the packages that a server needs."""

from __future__ import annotations

import sys
from importlib import import_module


def main(arguments: list[str]) -> int:
    """Serve as the command line says; the exit status."""
    try:
        run = import_module("webhook.run")
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"gpuward: serve needs the package {error.name!r}, which comes with the extra "
            "'webhook': pip install 'gpuward[webhook]'\n"
        )
        return 2
    status: int = run.main(arguments)
    return status
