"""The command `gpuward completion SHELL`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from terminal.arguments import CommandParser

SHELLS = ("bash", "zsh", "fish")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
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

    parser = parsers.make_parser()
    _complete_files(parser, shtab.FILE)
    sys.stdout.write(shtab.complete(parser, shell) + "\n")
    return 0


def _complete_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Have shells propose `files` for paths; zsh then also proposes the options beside them."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                _complete_files(inner, files)
        elif action.metavar in {"PATH", "FILE"}:
            action.complete = files  # type: ignore[attr-defined]  # which shtab reads
