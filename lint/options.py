"""The options of `gpuward lint`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from lint.sources import STANDARD_INPUT
from policies.files import POLICY_FILE

FORMATS = ("text", "json", "concise", "summary")
_EPILOG = """\
exit status:
  0  nothing found that reaches --fail-on
  1  findings at or above --fail-on
  2  wrong usage, or a policy that cannot be used
  3  some input could not be evaluated: unreadable, not parsable, or a rule failed;
     with --require-input also if there was nothing to evaluate
"""


class _NoFix(argparse.Action):
    """`--fix`, which other linters have."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: str | Sequence[Any] | None,
        _option: str | None = None,
    ) -> NoReturn:
        parser.error(
            "there is no --fix: --diff shows what fixes would change, and changes no file; "
            "--patch shows it as JSON Patch"
        )


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(
        prog="gpuward lint",
        description="Find faults in GPU manifests.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_inputs(made)
    _add_outputs(made)
    return made


def _add_inputs(made: argparse.ArgumentParser) -> None:
    made.add_argument("paths", metavar="PATH", nargs="*", help="file, folder, glob, or - for stdin")
    made.add_argument(
        "--policy",
        metavar="FILE",
        help=f"instead of the nearest {POLICY_FILE}: a policy, or a ConfigMap with one",
    )
    made.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="the GPU platform that you run, such as gke; repeatable; default: nvidia",
    )
    made.add_argument("--namespace", "-n", help="where objects go that name no namespace")
    made.add_argument(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="leave out files, or folders, whose path or name fits; repeatable",
    )
    made.add_argument(
        "--stdin-filename",
        metavar="FILE",
        default=STANDARD_INPUT,
        help="the file that standard input is the text of, for editors",
    )
    made.add_argument(
        "--require-input",
        action="store_true",
        help="exit with status 3 if there is no pod, quota or claim to evaluate",
    )


def _add_outputs(made: argparse.ArgumentParser) -> None:
    made.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    made.add_argument("--diff", action="store_true", help="show what fixing would do instead")
    made.add_argument(
        "--patch", action="store_true", help="the same as JSON Patch: what admission sends for Pods"
    )
    made.add_argument("--fix", action=_NoFix, nargs=0, help=argparse.SUPPRESS)
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
