"""Completion of commands in shells: `gpuward completion SHELL`, and what kubectl asks for.

kubectl runs the program `kubectl_complete-gpuward` with the words after `kubectl gpuward`, of which
the last is not finished, and reads one proposal in each line.
Source: Kubernetes, `staging/src/k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuward import parsers
from gpuward.commands import COMMANDS
from terminal import CommandParser

SHELLS = ("bash", "zsh", "fish")
# Cobra's directives: what the shell does with the proposals.
_WITH_FILES_DIRECTIVE, _WITHOUT_FILES_DIRECTIVE = ":0", ":4"
_PATH_METAVARS = ("PATH", "FILE", "DIR")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward completion",
        description="Print a script that completes the commands and options of gpuward.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    return parser


def main(arguments: list[str]) -> int:
    """Print the script for the shell; the exit status."""
    shell = make_parser().parse_args(arguments).shell
    import shtab  # noqa: PLC0415  # an extra

    parser = parsers.make_parser()
    _mark_file_arguments(parser, shtab.FILE)
    sys.stdout.write(shtab.complete(parser, shell) + "\n")
    return 0


def _mark_file_arguments(parser: argparse.ArgumentParser, files: Any) -> None:
    """Have shells propose `files` for paths; zsh then also proposes the options beside them."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                _mark_file_arguments(inner, files)
        elif action.metavar in {"PATH", "FILE"}:
            action.complete = files  # type: ignore[attr-defined]  # which shtab reads


def complete(arguments: list[str]) -> int:
    """Print what kubectl can complete the last word of `arguments`; the exit status."""
    *words, prefix = arguments or [""]
    found = _proposals(words, prefix)
    lines = [f"{name}\t{what}" if what else name for name, what in (found or {}).items()]
    sys.stdout.write(
        "\n".join((*lines, _WITH_FILES_DIRECTIVE if found is None else _WITHOUT_FILES_DIRECTIVE))
        + "\n"
    )
    return 0


def _proposals(words: list[str], prefix: str) -> Mapping[str, str] | None:
    """Words with their descriptions; None for names of files."""
    if not words:
        commands = {name: what for name, (_, _, what) in COMMANDS.items()}
        return _words_with_prefix(commands.items(), prefix)
    parser = parsers.command_parser(words[0]) if words[0] in COMMANDS else None
    if parser is None:
        return {}
    parser, rest = _innermost_parser(parser, words[1:])
    option = next((a for a in parser._actions if rest and rest[-1] in a.option_strings), None)  # noqa: SLF001  # argparse has no other way to ask
    if option is not None and option.nargs != 0:
        return _values_of_option(option, prefix)
    if prefix.startswith("-"):
        return _words_with_prefix(_options(parser), prefix)
    positional = _next_positional(parser, rest)
    return _values_of_option(positional, prefix) if positional else {}


def _next_positional(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Action | None:
    """The positional argument that comes after `words`; None if there is none."""
    with_value = [name for a in parser._actions if a.nargs != 0 for name in a.option_strings]  # noqa: SLF001  # the same
    given = sum(
        not word.startswith("-") and previous not in with_value
        for previous, word in itertools.pairwise(["", *words])
    )
    positional = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001  # the same
    for number, action in enumerate(positional):
        if number == given or action.nargs in {"*", "+"}:
            return action
    return None


def _innermost_parser(
    parser: argparse.ArgumentParser, words: list[str]
) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the verb that the words name, and the words after it."""
    for number, word in enumerate(words):
        for action in parser._actions:  # noqa: SLF001  # the same
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001  # the same
                return _innermost_parser(action.choices[word], words[number + 1 :])
    return parser, words


def _values_of_option(action: argparse.Action, prefix: str) -> Mapping[str, str] | None:
    if action.choices is not None:
        return _words_with_prefix(((str(choice), "") for choice in action.choices), prefix)
    return None if action.metavar in _PATH_METAVARS else {}


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:  # noqa: SLF001  # the same
        if action.help != argparse.SUPPRESS:
            for name in action.option_strings:
                yield name, (action.help or "").partition("\n")[0]


def _words_with_prefix(words: Iterable[tuple[str, str]], prefix: str) -> Mapping[str, str]:
    return {word: what for word, what in words if word.startswith(prefix)}
