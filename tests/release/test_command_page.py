"""The texts of the commands about their options: in `--help`, and on the page docs/commands.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from gpuward.commands import COMMANDS
from gpuward.parsers import arguments_of, command_parser, subcommands
from tests.testkit.paths import ROOT
from tools import command_page


def arguments_of_all(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a command and of its subcommands."""
    yield from arguments_of(parser)
    for _, inner in subcommands(parser):
        yield from arguments_of(inner)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_says_what_it_is_in_one_style(name: str) -> None:
    parser = command_parser(name)
    assert parser
    for argument in arguments_of_all(parser):
        assert argument.help, argument
        first = argument.help.split()[0]
        assert first in {first.lower(), first.upper()}, argument
        is_sentence = argument.help.endswith(".") and not argument.help.endswith(": .")
        assert not is_sentence, argument


def test_the_page_of_commands_is_up_to_date() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == command_page.page(), "run make docs"
