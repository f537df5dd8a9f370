"""The command `gpuward fix`, which is `gpuward lint --fix`."""

from __future__ import annotations

from lint import cli


def main(arguments: list[str]) -> int:
    """Fix as the command line says; the exit status."""
    return cli.main(arguments, prog="gpuward fix")
