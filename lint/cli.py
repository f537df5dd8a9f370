"""The command `gpuward lint`."""

from __future__ import annotations

import argparse
import datetime
import os
import stat
import sys
import time
from importlib import import_module
from typing import TextIO

from lint.report import Style, Writer, printable
from lint.results import Results
from lint.run import Linter, calm_garbage_collection
from lint.sources import MAX_BYTES, UsageError, sources
from policies.load import PolicyError, default_policy, load_policy
from rules.policy import Policy
from rules.profile.context import Context

FORMATS = ("text", "json", "concise")
POLICY_FILE = "gpuward.yaml"
_EPILOG = """\
exit status:
  0  nothing found that reaches --fail-on
  1  findings at or above --fail-on
  2  wrong usage, or a policy that cannot be used
  3  some input could not be judged: unreadable, not parsable, or a rule failed
"""


def main(arguments: list[str]) -> int:
    """Lint as the command line says; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _lint(options, sys.stdout)
    except (UsageError, PolicyError) as error:
        # A path may hold anything, but the lines of a policy's faults are ours.
        lines = (printable(line) for line in str(error).split("\n"))
        sys.stderr.write("gpuward: " + "\n".join(lines) + "\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuward lint",
        description="Find what is wrong with GPU manifests.",
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
        help="the GPU estate that you run, such as gke; repeatable; default: nvidia",
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
    calm_garbage_collection()
    paths = options.paths or _standard_input()
    context = Context(
        today=datetime.datetime.now(tz=datetime.UTC).date(), namespace=options.namespace
    )
    file = options.policy or _nearest_policy(os.getcwd())
    policy = _policy(file, options.profile)
    preview_wanted = options.diff or options.patch
    linter = Linter(policy, context, policy_file=file or "", preview=preview_wanted)
    linter.judge(sources(paths, options.exclude))
    linter.finish()
    linter.results.seconds = time.perf_counter() - started
    if preview_wanted:
        preview = import_module("lint.preview")
        (preview.write_diff if options.diff else preview.write_patch)(out, linter.previews)
        _complain(linter.results)
    else:
        writer: Writer = import_module(f"lint.report.{options.format}").write
        notes = options.notes or options.fail_on == "note"
        writer(out, linter.results, Style(_colored(options.color, out), notes))
    return linter.results.status(options.fail_on)


def _complain(results: Results) -> None:
    """What could not be judged belongs to the user's eyes even where a diff is asked for."""
    for unjudged in results.unjudged:
        where = f"{unjudged.file}:{unjudged.line}:{unjudged.column}"
        sys.stderr.write(printable(f"{where}: not judged: {unjudged.message}") + "\n")


def _standard_input() -> list[str]:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("nothing to lint: give a file or folder, or - for standard input")
    return ["-"]


def _policy(file: str | None, profiles: list[str]) -> Policy:
    if file is None:
        return default_policy(profiles)
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise PolicyError(f"{file}: not a regular file")
        with open(file, "rb") as stream:
            content = stream.read(MAX_BYTES)
        return load_policy(content.decode("utf-8"), file, profiles)
    except OSError as error:
        raise PolicyError(f"{file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"{file}: not UTF-8 (byte {error.start})") from error


def _nearest_policy(folder: str) -> str | None:
    """The policy file nearest to `folder`, looked for up to the root of the repository only."""
    here, folders = folder, [folder]
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            del folders[1:]  # no repository: no file further up is meant for this folder
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


def _colored(choice: str, out: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or out.isatty()
