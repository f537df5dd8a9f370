"""The command `gpuward hook`: evaluate commits and pushes."""

from __future__ import annotations

import argparse
import sys

from lint.hooks import pre_commit, pre_receive
from lint.options import parse_lint_settings
from lint.run import find_policies, with_default_paths
from policies.loading import PolicyError
from sources.sources import UsageError
from terminal import CommandParser, printable, write_error

_EPILOG = "exit status: 0 done, 1 a hook of somebody else is in the way, 2 wrong usage"


def main(arguments: list[str]) -> int:
    """Run the command with these command-line arguments, and return its exit status."""
    options, lint_options = _parse(arguments)
    try:
        status: int = options.run(options, lint_options)
    except pre_commit.ForeignHookError as error:
        return _fail(error, 1)
    except (UsageError, PolicyError) as error:
        return _fail(error, 2)
    return status


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options of the hook command, and those after `--`, which are for `gpuward lint`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser, lint_options = make_parser(), arguments[end + 1 :]
    options = parser.parse_args(arguments[:end])
    if lint_options and not options.takes_lint_options:
        parser.error("only `install` takes options of `gpuward lint`")
    return options, lint_options


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(prog="gpuward hook", description="Evaluate commits and pushes.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    install = commands.add_parser(
        "install",
        usage="gpuward hook install [--fix] [-- LINT-OPTION …]",
        help="write a Git hook that evaluates what is staged",
        description="Write the pre-commit hook of this repository, where core.hooksPath says. It "
        "runs `gpuward lint --staged --quiet`, with the options after `--`. A hook that gpuward "
        "did not write stays as it is.",
        epilog=_EPILOG,
    )
    install.add_argument("--fix", action="store_true", help="the hook runs `gpuward fix`")
    install.set_defaults(run=_install, takes_lint_options=True)
    uninstall = commands.add_parser(
        "uninstall", help="remove the hook that `install` wrote", epilog=_EPILOG
    )
    uninstall.set_defaults(run=_uninstall, takes_lint_options=False)
    receive = commands.add_parser(
        "pre-receive",
        help="for Git servers: evaluate what a push changes",
        description=pre_receive.DESCRIPTION,
        epilog=pre_receive.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    pre_receive.add_options(receive)
    receive.set_defaults(run=_receive, takes_lint_options=False)
    return parser


def _install(options: argparse.Namespace, lint_options: list[str]) -> int:
    verb = "fix" if options.fix else "lint"
    arguments = ["--staged", "--quiet", *lint_options]
    settings = parse_lint_settings(arguments, f"gpuward {verb}")
    find_policies(with_default_paths(settings))  # an error now, not at each commit
    path = pre_commit.install([verb, *arguments])
    sys.stdout.write(f"{printable(path)}: written\n")
    return 0


def _uninstall(_options: argparse.Namespace, _lint_options: list[str]) -> int:
    path = pre_commit.uninstall()
    sys.stdout.write(f"{printable(path)}: removed\n" if path else "there is no hook of gpuward\n")
    return 0


def _receive(options: argparse.Namespace, _lint_options: list[str]) -> int:
    settings = pre_receive.push_settings(options)
    return pre_receive.judge_pushes(settings, sys.stdin.buffer, sys.stdout)


def _fail(error: Exception, status: int) -> int:
    write_error("gpuward", *str(error).split("\n"))
    return status
