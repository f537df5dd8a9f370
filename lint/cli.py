"""The command `gpuward lint`."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from importlib import import_module
from typing import TextIO

from lint.linter import Linter, reduce_garbage_collection
from lint.report import Style, Writer, printable
from lint.results import Results
from lint.sources import UsageError, sources
from policies.files import parse_policy, read_policy_file
from policies.loading import PolicyError, default_policy
from rules.policy import Policy
from rules.profile.context import Context

FORMATS = ("text", "json", "concise")
POLICY_FILE = "gpuward.yaml"
_EPILOG = """\
exit status:
  0  nothing found that reaches --fail-on
  1  findings at or above --fail-on
  2  wrong usage, or a policy that cannot be used
  3  some input could not be evaluated: unreadable, not parsable, or a rule failed
"""


def main(arguments: list[str]) -> int:
    """Lint as the command line says; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _lint(options, sys.stdout)
    except (UsageError, PolicyError) as error:
        # A path may contain control characters; the line breaks between problems are ours.
        lines = (printable(line) for line in str(error).split("\n"))
        sys.stderr.write("gpuward: " + "\n".join(lines) + "\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuward lint",
        description="Find faults in GPU manifests.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="file, folder, glob, or - for stdin"
    )
    parser.add_argument("--policy", metavar="FILE", help=f"instead of the nearest {POLICY_FILE}")
    parser.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="the GPU platform that you run, such as gke; repeatable; default: nvidia",
    )
    parser.add_argument("--namespace", "-n", help="where objects go that name no namespace")
    parser.add_argument(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="leave out files, or folders, whose path or name fits; repeatable",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("--diff", action="store_true", help="show what fixing would do instead")
    parser.add_argument(
        "--patch", action="store_true", help="the same as JSON Patch: what admission sends for Pods"
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        default="error",
        help="what makes the exit status 1; default: error",
    )
    parser.add_argument(
        "--notes", action="store_true", help="show notes too: what admission sets by default"
    )
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    return parser


def _lint(options: argparse.Namespace, out: TextIO) -> int:
    started = time.perf_counter()
    reduce_garbage_collection()
    paths = options.paths or _standard_input()
    context = Context(
        today=datetime.datetime.now(tz=datetime.UTC).date(), namespace=options.namespace
    )
    file = options.policy or _nearest_policy(os.getcwd())
    policy = _policy(file, options.profile)
    preview_wanted = options.diff or options.patch
    linter = Linter(policy, context, policy_file=file or "", preview=preview_wanted)
    linter.evaluate(sources(paths, options.exclude))
    linter.finish()
    linter.results.seconds = time.perf_counter() - started
    if preview_wanted:
        preview = import_module("lint.preview")
        (preview.write_diff if options.diff else preview.write_patch)(out, linter.previews)
        _report_not_evaluated(linter.results)
    else:
        writer: Writer = import_module(f"lint.report.{options.format}").write
        notes = options.notes or options.fail_on == "note"
        writer(out, linter.results, Style(_use_color(options.color, out), notes))
    return linter.results.status(options.fail_on)


def _report_not_evaluated(results: Results) -> None:
    """Say on standard error what could not be evaluated: a diff or patch has no place for it."""
    for failed in results.not_evaluated:
        where = f"{failed.file}:{failed.line}:{failed.column}"
        sys.stderr.write(printable(f"{where}: not evaluated: {failed.message}") + "\n")


def _standard_input() -> list[str]:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("nothing to lint: give a file or folder, or - for standard input")
    return ["-"]


def _policy(file: str | None, profiles: list[str]) -> Policy:
    if file is None:
        return default_policy(profiles)
    return parse_policy(read_policy_file(file), file, profiles)


def _nearest_policy(folder: str) -> str | None:
    """The policy file nearest to `folder`, from there up to the root of the repository."""
    here, folders = folder, [folder]
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            del folders[1:]  # without a repository, a file further up is not for this folder
            break
        here = above
        folders.append(here)
    for place in folders:
        file = os.path.join(place, POLICY_FILE)
        if os.path.lexists(file):
            return os.path.relpath(file, folder)
        if os.path.lexists(other := file.removesuffix(".yaml") + ".yml"):
            raise PolicyError(f"{other}: a policy is looked for as {POLICY_FILE}; rename the file")
    return None


def _use_color(choice: str, out: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or out.isatty()
