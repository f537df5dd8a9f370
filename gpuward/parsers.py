"""The parsers of all commands, for what is made from them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

from gpuward.commands import COMMANDS
from terminal import CommandParser

# The modules that make the parsers, where that is not the module of the command.
_PARSER_MODULES = {"lint": "lint.options", "fix": "lint.options"}


def make_parser() -> argparse.ArgumentParser:
    """A parser with every command; one whose extra is not installed has no options."""
    made: argparse.ArgumentParser = CommandParser(
        prog="gpuward", description="Find faults in pods with GPUs."
    )
    made.add_argument("--version", "-V", action="store_true", help="print the version")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, _, what) in COMMANDS.items():
        known = command_parser(name)
        parents = [known] if known else []
        commands.add_parser(name, help=what, parents=parents, add_help=not parents)
    return made


def command_parser(name: str) -> argparse.ArgumentParser | None:
    """The parser of the command `name`; None if its extra is not installed."""
    module = _PARSER_MODULES.get(name, COMMANDS[name][0])
    try:
        loaded = import_module(module)
    except ModuleNotFoundError:
        return None
    if module == "lint.options":
        parser: argparse.ArgumentParser = loaded.lint_parser(f"gpuward {name}")
    else:
        parser = loaded.make_parser()
    return parser


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a command that its help shows, but for `--help` and subcommands."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        is_other = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))  # noqa: SLF001
        if not is_other and action.help != argparse.SUPPRESS:
            yield action


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The name and the parser of each subcommand, such as `run` of `gpuward certs`."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def subcommand_help(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The name of each subcommand, and what it does."""
    return {
        entry.dest: entry.help or ""
        for action in parser._actions  # noqa: SLF001  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        for entry in action._choices_actions  # noqa: SLF001
    }
