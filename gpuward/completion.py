"""The command `gpuward completion SHELL`."""

from __future__ import annotations

import argparse
import sys

SHELLS = ("bash", "zsh", "fish")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="gpuward completion",
        description="Print a script that completes the commands and options of gpuward.",
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser


def main(arguments: list[str]) -> int:
    """Print the script for the shell; the exit status."""
    shell = make_parser().parse_args(arguments).shell
    import shtab  # noqa: PLC0415  # an extra

    from gpuward import parsers  # noqa: PLC0415  # only after an option such as --help

    sys.stdout.write(shtab.complete(parsers.make_parser(), shell) + "\n")
    return 0
