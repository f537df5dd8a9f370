"""The options of `gpuward lint`, and those that say what is linted, and by which policy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from policies import POLICY_FILE
from policies.problems import path_pattern_problem
from reports import FORMATS
from sources import STANDARD_INPUT
from terminal import CommandParser

if TYPE_CHECKING:
    from lint.settings import LintSettings

# What helm reads as a version of Kubernetes (Masterminds/semver, `NewVersion`).
_VERSION_PATTERN = r"v?[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"


def add_input_options(made: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what says which files are linted, and by which policy; returns the group of these."""
    group = made.add_argument_group("input")
    group.add_argument(
        "paths", metavar="PATH", nargs="*", help="file, folder, glob, or - for stdin"
    )
    add_policy_options(group)
    group.add_argument("--namespace", "-n", help="the namespace of objects that name none")
    add_exclude_option(group)
    group.add_argument(
        "--no-gitignore",
        action="store_true",
        help="lint files in folders also if Git ignores them",
    )
    group.add_argument(
        "--stdin-filename",
        metavar="FILE",
        default=STANDARD_INPUT,
        help="for editors: the file whose text is on standard input",
    )
    group.add_argument(
        "--jobs",
        "-j",
        metavar="N",
        type=_positive_integer,
        help="processes for many or large files; default: one for each processor, at most 8",
    )
    group.add_argument(
        "--require-input",
        action="store_true",
        help="exit with status 3 if there is no pod, quota or claim to evaluate",
    )
    group.add_argument(
        "--also",
        metavar="KINDS",
        default="",
        help="also lint files that are no manifests: dockerfile, compose, shell, markdown, or "
        "several of them with commas",
    )
    _add_rendering_options(made.add_argument_group("charts and kustomizations"))
    return group


def add_exclude_option(made: argparse._ActionsContainer) -> None:
    """Add the option that leaves files out."""
    made.add_argument(
        "--exclude",
        metavar="GLOB",
        type=_path_pattern,
        action="append",
        default=[],
        help="leave out files and folders whose path or name fits; repeatable",
    )


def _path_pattern(text: str) -> str:
    if problem := path_pattern_problem(text, is_inside=False):
        raise argparse.ArgumentTypeError(problem)
    return text


def add_profile_option(made: argparse._ActionsContainer) -> None:
    """Add the option for the GPU platform to a command about one policy."""
    made.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="a profile to use instead of those that the policy names; repeatable",
    )


def add_policy_options(group: argparse._ActionsContainer) -> None:
    """Add what says which policy is used."""
    group.add_argument(
        "--policy",
        metavar="FILE",
        help=f"instead of the nearest {POLICY_FILE}: a policy, or a ConfigMap with one",
    )
    group.add_argument(
        "--isolated",
        action="store_true",
        help=f"do not look for {POLICY_FILE}: without --policy, use the default policy",
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="the GPU platform that you run, such as gke, instead of the profiles of the policy, "
        "those in perPath too; repeatable; default: nvidia",
    )


def _positive_integer(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1 up")
    return number


def add_selection_options(made: argparse._MutuallyExclusiveGroup) -> None:
    """Add what chooses files by their history in Git."""
    made.add_argument(
        "--staged",
        action="store_true",
        help="what the next Git commit would add or change, as it is staged; PATHs restrict it",
    )
    made.add_argument(
        "--changed-since",
        metavar="REV",
        help="only files that differ from where the branch left this revision of git",
    )


def _add_rendering_options(made: argparse._ArgumentGroup) -> None:
    made.add_argument(
        "--render",
        action="store_true",
        default=None,  # which a policy may say
        help="lint charts and kustomizations as your helm and kubectl render them",
    )
    made.add_argument(
        "--no-render",
        action="store_false",
        dest="render",
        help="run neither helm nor kubectl, also if the policy says so",
    )
    made.add_argument(
        "--values",
        metavar="FILE",
        action="append",
        default=[],
        help="a values file for the chart, instead of its ci/*-values.yaml; repeatable",
    )
    made.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="sets",
        action="append",
        default=[],
        help="a value for the chart, as helm takes it; repeatable",
    )
    made.add_argument(
        "--kube-version",
        metavar="VERSION",
        type=_kubernetes_version,
        default="",
        help="render for this Kubernetes version",
    )


def _kubernetes_version(text: str) -> str:
    if text and not re.fullmatch(_VERSION_PATTERN, text):
        raise argparse.ArgumentTypeError(f"{text}: expected a version such as 1.34 or v1.34.2")
    return text


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


def parse_lint_settings(arguments: list[str], prog: str = "gpuward lint") -> LintSettings:
    """Return the settings that the command line of `gpuward lint` gives, or of `gpuward fix`."""
    options = lint_parser(prog).parse_args(arguments)
    from lint.settings import FixSettings, ReportSettings  # noqa: PLC0415  # help does without

    settings = input_settings(options)
    return settings._replace(
        inputs=settings.inputs._replace(staged=options.staged, changed_since=options.changed_since),
        fixes=FixSettings(
            fix=options.fix,
            diff=options.diff,
            patch=options.patch,
            unsafe=options.unsafe_fixes,
            rules=tuple(options.rules),
        ),
        reports=ReportSettings(
            output=options.output,
            reports=tuple(options.reports),
            quiet=options.quiet,
            fail_on=options.fail_on,
            notes=options.notes,
            color=options.color,
            baseline=options.baseline,
            fix_arguments=_fix_arguments(options, arguments),
        ),
        select=tuple(options.select),
        ignore=tuple(options.ignore),
    )


def _fix_arguments(options: argparse.Namespace, arguments: list[str]) -> tuple[str, ...] | None:
    """The arguments with which `gpuward fix` fixes what `gpuward lint ARGUMENTS` finds, if any."""
    changes_or_reports = (
        options.fix or options.diff or options.patch or options.output or options.reports
    )
    has_other_input = options.render or options.staged or options.changed_since
    if changes_or_reports or has_other_input or "-" in options.paths:
        return None
    return tuple(arguments)


def input_settings(options: argparse.Namespace) -> LintSettings:
    """Return what the options of `add_input_options` say; the rest of the settings is default."""
    # They take long to load, and help does without.
    from lint.settings import InputSettings, LintSettings, RenderSettings  # noqa: PLC0415
    from sources.policy_file import PolicyChoice  # noqa: PLC0415

    return LintSettings(
        policy=PolicyChoice(options.policy, tuple(options.profile), isolated=options.isolated),
        inputs=InputSettings(
            paths=tuple(options.paths),
            namespace=options.namespace,
            exclude=tuple(options.exclude),
            includes_ignored=options.no_gitignore,
            stdin_filename=options.stdin_filename,
            also=options.also,
            is_required=options.require_input,
            jobs=options.jobs,
        ),
        rendering=RenderSettings(
            is_on=options.render,
            values_files=tuple(options.values),
            set_values=tuple(options.sets),
            kube_version=options.kube_version,
        ),
    )


def lint_parser(prog: str = "gpuward lint") -> argparse.ArgumentParser:
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
    add_selection_options(add_input_options(made).add_mutually_exclusive_group())
    _add_rule_options(made.add_argument_group("rules"))
    _add_fix_options(made.add_argument_group("fixes"), is_fix=is_fix)
    reports = made.add_argument_group("report")
    add_report_options(reports)
    made.set_defaults(fail_on=None)  # which a policy may say
    reports.add_argument(
        "--baseline",
        metavar="FILE",
        help="report only findings that are not in this file, which gpuward baseline writes",
    )
    reports.add_argument(
        "--no-baseline",
        action="store_const",
        const="",
        dest="baseline",
        help="report every finding, also if the policy has a baseline",
    )
    made.add_argument_group("help").add_argument(
        "--help", "-h", action="help", help="print this text"
    )
    return made


def add_report_options(made: argparse._ArgumentGroup, views: Iterable[str] = ()) -> None:
    """Add what says which reports are written, what they have, and the exit status.

    `views` are more words for `--output`.
    """
    form = made.add_mutually_exclusive_group()
    formats = (*FORMATS, *views)
    form.add_argument(
        "--output",
        "-o",
        metavar="FORMAT",
        choices=formats,
        help=f"{', '.join(formats)}; default: text",
    )
    form.add_argument(
        "--statistics",
        action="store_const",
        dest="output",
        const="statistics",
        help="how many findings there are of each rule, instead of each finding",
    )
    made.add_argument(
        "--quiet",
        "-q",
        action="store_true",
        help="only findings and failures, without the last lines that count them",
    )
    made.add_argument(
        "--report",
        metavar="FORMAT=FILE",
        dest="reports",
        action="append",
        default=[],
        help="also write a report into a file; repeatable; - is standard output, for --output",
    )
    made.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        default="error",
        help="the lowest level that makes the exit status 1; default: error",
    )
    made.add_argument(
        "--notes",
        action="store_true",
        help="show, and fix, notes too: what admission sets by default",
    )
    made.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether to color text; default: auto, on a terminal",
    )


def _add_rule_options(made: argparse._ArgumentGroup) -> None:
    for option, what in (("--select", "only"), ("--ignore", "do not")):
        made.add_argument(
            option,
            metavar="RULE",
            action="append",
            default=[],
            help=f"{what} report these rules, or families of rules, with commas; repeatable",
        )


def _add_fix_options(made: argparse._ArgumentGroup, *, is_fix: bool) -> None:
    fix_help = argparse.SUPPRESS if is_fix else "write fixes into the files, as gpuward fix does"
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
        help="also make fixes that take something away or decide for you; review them",
    )
    made.add_argument(
        "--rule",
        metavar="RULE",
        dest="rules",
        action="append",
        default=[],
        help="make only the fixes of this rule; repeatable",
    )
