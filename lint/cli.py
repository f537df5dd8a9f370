"""The commands `gpuward lint` and `gpuward fix`."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TextIO

from lint.linter import reduce_garbage_collection
from lint.options import lint_parser
from lint.preview import write_patch
from lint.run import find_policies, paths_to_lint, run_linter
from policies.loading import PolicyError
from reports.formats import FORMATS_WITH_EDITS, ReportStyle, writer_of
from reports.results import InputNotEvaluated, Results
from rules.finding import Action
from sources.sources import DISK, UsageError
from terminal import printable, use_color, use_hyperlinks, write_error

if TYPE_CHECKING:
    from lint.fix.output import FixOutput
    from sources.git.changes import StagedFiles


def main(arguments: list[str]) -> int:
    """Run `gpuward lint ARGUMENTS`; the exit status."""
    return _run(lint_parser("gpuward lint").parse_args(arguments))


def fix(arguments: list[str]) -> int:
    """Run `gpuward fix ARGUMENTS`, which is `gpuward lint --fix`; the exit status."""
    return _run(lint_parser("gpuward fix").parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    try:
        return _lint(options, sys.stdout)
    except (UsageError, PolicyError) as error:
        write_error("gpuward", *str(error).split("\n"))
        return 2


def _shows_notes(options: argparse.Namespace) -> bool:
    return bool(options.notes or options.fail_on == "note")


def _lint(options: argparse.Namespace, out: TextIO) -> int:
    started = time.perf_counter()
    reduce_garbage_collection()
    paths = paths_to_lint(options)
    if options.output and (options.diff or options.patch):
        why = "--diff and --patch show changes instead of a report"
        raise UsageError(f"{why}: leave --output out, or write it into a file with --report")
    fix_output = None
    if (options.fix or options.diff) and not options.patch:
        from lint.fix.output import choose_fix_output  # noqa: PLC0415  # most runs only lint

        # What the report does not show is not written. Whoever names a rule wants its fixes.
        least = Action.AUDIT if _shows_notes(options) or options.rules else Action.WARN
        fix_output = choose_fix_output(paths, out, least, diff=options.diff, staged=options.staged)
        out = fix_output.report
    with (fix_output and fix_output.streams) or nullcontext(), _staged_files(options) as files:
        return _evaluate(options, paths, fix_output, files, out, started)


def _staged_files(options: argparse.Namespace) -> AbstractContextManager[StagedFiles | None]:
    if not options.staged:
        return nullcontext()
    from sources.git.changes import staged_files  # noqa: PLC0415  # few runs need Git

    return staged_files()


def _evaluate(
    options: argparse.Namespace,
    paths: list[str],
    fix_output: FixOutput | None,
    staged: StagedFiles | None,
    out: TextIO,
    started: float,
) -> int:
    """Evaluate `paths`, fix them as `fix_output` says, and report to `out`; the exit status."""
    policies = find_policies(options, paths, staged.tree if staged else DISK)
    outputs = baseline = suggest = None
    if options.reports:
        from reports.outputs import plan_outputs  # noqa: PLC0415  # most runs write one report

        outputs = plan_outputs(options, paths)
    if options.baseline:
        from lint.baseline.matching import load_baseline  # noqa: PLC0415  # not every project has one

        baseline = load_baseline(options.baseline)
    formats = outputs.formats if outputs else {options.output}
    notes = _shows_notes(options)
    if FORMATS_WITH_EDITS & formats and not fix_output:
        from lint.fix.suggestions import edit_suggester  # noqa: PLC0415  # few formats have edits

        suggest = edit_suggester(notes=notes)
    done = run_linter(options, paths, fix_output, staged, suggest, policies)
    results = done.results
    if baseline:
        baseline.drop_accepted(results, done.policy_of, done.today, done.is_wanted_rule)
    results.seconds = time.perf_counter() - started
    form = outputs.standard_output_format if outputs else options.output or "text"
    shows_changes = options.diff or options.patch
    has_last_line = form == "text" and not (options.quiet or shows_changes)
    _report_missing_input(results, paths, options, has_last_line=has_last_line)
    style = ReportStyle(notes=notes, quiet=options.quiet, fail_on=options.fail_on)
    # The files first: whoever reads standard output may close it early.
    is_written = not outputs or outputs.write(results, style)
    if shows_changes:
        if options.patch:
            write_patch(out, done.previews)
        _report_not_evaluated(results)
    else:
        color, links = use_color(options.color, out), use_hyperlinks(options.color, out)
        writer_of(form)(out, results, style._replace(color=color, hyperlinks=links))
    if not is_written:
        return 2
    status = results.exit_status(options.fail_on)
    if staged and results.fixed and not options.diff:
        write_error("gpuward", "the fixes are not staged: review them, and `git add` them")
        return status or 1
    return status


def _report_missing_input(
    results: Results, paths: list[str], options: argparse.Namespace, *, has_last_line: bool
) -> None:
    """Say that there was nothing to evaluate: as input not evaluated if some is required.

    Otherwise it is a note on standard error, where it disturbs no report. So is what only
    `--render` evaluates, for a report without a last line that says it.
    """
    what, names = results.reason_nothing_evaluated, " ".join(paths)
    # Most commits have no manifest.
    is_usual = options.staged or options.changed_since or options.quiet
    if what and options.require_input:
        results.not_evaluated.append(InputNotEvaluated(names, 0, 0, what))
    elif what and not is_usual:
        write_error("gpuward", f"note: {names}: {what}")
    if results.needs_rendering and not has_last_line:
        write_error("gpuward", f"note: {results.skipped_text}")


def _report_not_evaluated(results: Results) -> None:
    """Say on standard error what was not evaluated or fixed: a diff has no place for it."""
    for failed in results.not_evaluated:
        where = f"{failed.file}:{failed.line}:{failed.column}"
        sys.stderr.write(printable(f"{where}: not evaluated: {failed.message}") + "\n")
    for entry in results.not_fixed:
        where = f"{entry.file}:{entry.line}:{entry.column}"
        sys.stderr.write(printable(f"{where}: not fixed: {entry.reason}") + "\n")
