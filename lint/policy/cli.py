"""The command `gpuward policy`."""

from __future__ import annotations

import argparse

from lint.policy import check, diff, init, prove, show, test, vendor
from policies.loading import PolicyError
from sources.sources import UsageError
from terminal import CommandParser, write_error


def main(arguments: list[str]) -> int:
    """Run the command with these command-line arguments, and return its exit status."""
    options = make_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (PolicyError, UsageError) as error:
        write_error("gpuward", *str(error).split("\n"))
        return 2
    return status


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(prog="gpuward policy", description="The policy.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (init, check, show, test, diff, prove, vendor):
        command.add_command(commands)
    return parser
