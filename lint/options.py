"""The options of `gpuward lint`."""

from __future__ import annotations

import argparse

from lint.input_options import add_inputs, add_selection
from lint.report import FORMATS
from terminal.arguments import CommandParser

_EPILOG = """\
exit status:
  0  nothing found that reaches --fail-on
  1  findings at or above --fail-on
  2  wrong usage, a policy that cannot be used, or a report that cannot be written
  3  some input could not be evaluated: unreadable, not parsable, or a rule failed;
     with --require-input also if there was nothing to evaluate;
     or a file could not be written
with --fix, the findings that count are those that remain
"""


def parser(prog: str = "gpuward lint") -> argparse.ArgumentParser:
    """The parser of the command line of `gpuward lint`, and of `gpuward fix`, which fixes."""
    is_fix = prog.endswith("fix")
    made = CommandParser(
        prog=prog,
        description="Fix faults in GPU manifests." if is_fix else "Find faults in GPU manifests.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    made.set_defaults(fix=is_fix)
    # Every option is in a group: argparse prepares to print help for each that is not.
    add_selection(add_inputs(made).add_mutually_exclusive_group())
    _add_fixes(made.add_argument_group("fixes"), is_fix=is_fix)
    reports = made.add_argument_group("report")
    add_reports(reports)
    reports.add_argument(
        "--baseline",
        metavar="FILE",
        help="report only findings that are not in this file: gpuward baseline",
    )
    made.add_argument_group("help").add_argument(
        "--help", "-h", action="help", help="print this text"
    )
    return made


def add_reports(made: argparse._ArgumentGroup) -> None:
    """Add what says which reports are written, what they have, and the exit status."""
    form = made.add_mutually_exclusive_group()
    form.add_argument("--format", choices=FORMATS, help="default: text")
    form.add_argument(
        "--statistics",
        action="store_const",
        dest="format",
        const="statistics",
        help="how many findings there are of each rule, instead of each finding",
    )
    made.add_argument(
        "--quiet", "-q", action="store_true", help="only findings and failures: no summing up"
    )
    made.add_argument(
        "--output",
        metavar="FORMAT=FILE",
        dest="outputs",
        action="append",
        default=[],
        help="also write a report into a file; repeatable; - is standard output, for --format",
    )
    made.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        default="error",
        help="what makes the exit status 1; default: error",
    )
    made.add_argument(
        "--notes", action="store_true", help="show notes too: what admission sets by default"
    )
    made.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def _add_fixes(made: argparse._ArgumentGroup, *, is_fix: bool) -> None:
    fix_help = argparse.SUPPRESS if is_fix else "write fixes into the files: gpuward fix"
    made.add_argument("--fix", action="store_true", default=is_fix, help=fix_help)
    shown = made.add_mutually_exclusive_group()
    shown.add_argument(
        "--diff", action="store_true", help="write no file; show what fixes would change in it"
    )
    shown.add_argument(
        "--patch",
        action="store_true",
        help="write no file; show the JSON Patches that admission sends for Pods",
    )
    made.add_argument(
        "--unsafe-fixes",
        action="store_true",
        help="also make fixes that take something away or decide something; review them",
    )
    made.add_argument(
        "--rule",
        metavar="RULE",
        dest="rules",
        action="append",
        default=[],
        help="make only the fixes of this rule; repeatable",
    )
