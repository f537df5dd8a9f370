"""The command `gpuward manual`: the manual page, made from the parsers of the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from gpuward import __version__
from gpuward.commands import COMMANDS
from gpuward.parsers import command_parser, subcommands
from terminal import CommandParser

_HELP_WIDTH = "78"  # columns of a manual page


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    return CommandParser(
        prog="gpuward manual",
        description="Print the manual page: gpuward manual > gpuward.1; man ./gpuward.1",
    )


def main(arguments: list[str]) -> int:
    """Print the page; the exit status."""
    make_parser().parse_args(arguments)
    os.environ["COLUMNS"] = _HELP_WIDTH  # which argparse reads
    sys.stdout.write("\n".join(_manual_lines()) + "\n")
    return 0


def _manual_lines() -> Iterator[str]:
    yield f'.TH GPUWARD 1 "" "gpuward {__version__}"'
    yield from (".SH NAME", "gpuward \\- admission controller and policy linter for GPUs")
    yield from (".SH SYNOPSIS", ".B gpuward", "COMMAND ...", ".SH COMMANDS")
    for name, (_, _, what) in COMMANDS.items():
        yield from (".TP", f".B {name}", _escaped(what))
    for name in COMMANDS:
        parser = command_parser(name)
        if parser:
            yield f".SH GPUWARD {name.upper()}"
            yield from _help(parser)
            for verb, inner in subcommands(parser):
                yield f'.SS "gpuward {name} {verb}"'
                yield from _help(inner)


def _help(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (".nf", *map(_escaped, parser.format_help().splitlines()), ".fi")


def _escaped(line: str) -> str:
    """A line of text as roff takes it."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text[:1] in {".", "'"} else text
