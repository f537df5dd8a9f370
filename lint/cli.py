"""The commands `gpuward lint` and `gpuward fix`."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TextIO

from lint.options import parse_lint_settings
from lint.run import find_policies, run_linter, with_default_paths
from lint.settings import InputSettings, LintSettings
from policies.loading import PolicyError
from reports import FORMATS_WITH_EDITS
from reports.formats import ReportStyle, writer_of
from reports.results import InputNotEvaluated, Results
from rules.finding import Action
from sources.sources import DISK, UsageError, reduce_garbage_collection
from terminal import printable, use_color, use_hyperlinks, write_error

if TYPE_CHECKING:
    from lint.fix.output import FixOutput
    from sources.git.changes import StagedFiles


def main(arguments: list[str]) -> int:
    """Run `gpuward lint ARGUMENTS`, and return the exit status."""
    return _run(parse_lint_settings(arguments, "gpuward lint"))


def fix(arguments: list[str]) -> int:
    """Run `gpuward fix ARGUMENTS`, which is `gpuward lint --fix`, and return the exit status."""
    return _run(parse_lint_settings(arguments, "gpuward fix"))


def _run(settings: LintSettings) -> int:
    try:
        return _lint(settings, sys.stdout)
    except (UsageError, PolicyError) as error:
        write_error("gpuward", *str(error).split("\n"))
        return 2


def _lint(settings: LintSettings, out: TextIO) -> int:
    started = time.perf_counter()
    reduce_garbage_collection()
    settings = with_default_paths(settings)
    paths, fixes, reports = settings.inputs.paths, settings.fixes, settings.reports
    if reports.output and (fixes.diff or fixes.patch):
        why = "--diff and --patch show changes instead of a report"
        raise UsageError(f"{why}: leave --output out, or write it into a file with --report")
    fix_output = None
    if (fixes.fix or fixes.diff) and not fixes.patch:
        from lint.fix.output import choose_fix_output  # noqa: PLC0415  # most runs only lint

        # What the report does not show is not written, except for rules that the user names.
        least = Action.AUDIT if reports.shows_notes or fixes.rules else Action.WARN
        fix_output = choose_fix_output(
            paths, out, least, diff=fixes.diff, staged=settings.inputs.staged
        )
        out = fix_output.report
    with (
        (fix_output and fix_output.streams) or nullcontext(),
        _staged_files(settings.inputs) as staged,
    ):
        return _evaluate(settings, fix_output, staged, out, started)


def _staged_files(settings: InputSettings) -> AbstractContextManager[StagedFiles | None]:
    if not settings.staged:
        return nullcontext()
    from sources.git.changes import staged_files  # noqa: PLC0415  # few runs need Git

    return staged_files()


def _evaluate(
    settings: LintSettings,
    fix_output: FixOutput | None,
    staged: StagedFiles | None,
    out: TextIO,
    started: float,
) -> int:
    """Evaluate and fix what `settings` say, report to `out`, and return the exit status."""
    policies, settings = find_policies(settings, staged.tree if staged else DISK)
    reports, shows_changes = settings.reports, settings.fixes.diff or settings.fixes.patch
    outputs = baseline = suggest = None
    if reports.reports:
        from reports.outputs import plan_outputs  # noqa: PLC0415  # most runs write one report

        outputs = plan_outputs(
            reports.reports, settings.inputs.paths, reports.output, shows_changes=shows_changes
        )
    if reports.baseline:
        from lint.baseline.matching import load_baseline  # noqa: PLC0415  # not every project has one

        baseline = load_baseline(reports.baseline)
    formats = outputs.formats if outputs else {reports.output}
    if FORMATS_WITH_EDITS & formats and not fix_output:
        from lint.fix.suggestions import edit_suggester  # noqa: PLC0415  # few formats have edits

        suggest = edit_suggester(notes=reports.shows_notes)
    done = run_linter(settings, policies, fix_output, staged, suggest)
    results = done.results
    if baseline:
        baseline.drop_accepted(results, done.policy_of, done.today, settings.wanted_rules)
    results.seconds = time.perf_counter() - started
    form = outputs.standard_output_format if outputs else reports.output or "text"
    has_last_line = form == "text" and not (reports.quiet or shows_changes)
    _report_missing_input(results, settings, has_last_line=has_last_line)
    fail_on = reports.fail_on or "error"
    style = ReportStyle(
        notes=reports.shows_notes,
        quiet=reports.quiet,
        fail_on=fail_on,
        fix_arguments=reports.fix_arguments,
    )
    # The files first: the reader of standard output may close it early.
    is_written = not outputs or outputs.write(results, style)
    if shows_changes:
        if settings.fixes.patch:
            from lint.fix.preview import write_patch  # noqa: PLC0415  # few runs show patches

            write_patch(out, done.previews)
        _report_not_evaluated(results)
    else:
        color, links = use_color(reports.color, out), use_hyperlinks(reports.color, out)
        writer_of(form)(out, results, style._replace(color=color, hyperlinks=links))
    if not is_written:
        return 2
    status = results.exit_status(fail_on)
    if staged and results.fixed and not settings.fixes.diff:
        write_error("gpuward", "the fixes are not staged: review them, and `git add` them")
        return status or 1
    return status


def _report_missing_input(results: Results, settings: LintSettings, *, has_last_line: bool) -> None:
    """Say that there was nothing to evaluate: as input not evaluated if some is required.

    Otherwise it is a note on standard error, where it disturbs no report. So is what only
    `--render` evaluates, for a report without a last line that says it.
    """
    given = settings.inputs
    what, names = results.reason_nothing_evaluated, " ".join(given.paths)
    # Most commits have no manifest.
    is_usual = given.staged or given.changed_since or settings.reports.quiet
    if what and given.is_required:
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
