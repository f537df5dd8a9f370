"""The command `gpuward baseline`: create, update and check the file of a baseline."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sized
from typing import NamedTuple

from lint.baseline.file import DEFAULT_FILE, BaselineEntry, baseline_text, read_baseline
from lint.baseline.matching import (
    BaselineComparison,
    BaselinePaths,
    PolicyOf,
    compare_with_baseline,
    complaints,
    new_entry,
)
from lint.fix.fixer import FixedText, WriteError
from lint.fix.output import write_file
from lint.options import add_input_options, input_settings
from lint.run import LintRun, find_policies, run_linter, with_default_paths
from lint.settings import LintSettings, ReportSettings
from policies.loading import PolicyError
from reports.findings import LocatedFinding
from sources.policy_file import Policies
from sources.sources import Source, UsageError, reduce_garbage_collection
from terminal import CommandParser, printable, reason_of, write_error

_DESCRIPTION = "Create, update or check a file of known findings, for `gpuward lint --baseline`."
_EPILOG = """\
exit status:
  0  the file is written, or is up to date
  1  there are findings that the file does not accept; or, with check, entries to update
  2  wrong usage, a policy or a baseline that cannot be used, or a file that cannot be written
  3  some input could not be evaluated
"""


def main(arguments: list[str]) -> int:
    """Run the command with these command-line arguments; the exit status."""
    options = make_parser().parse_args(arguments)
    reduce_garbage_collection()
    try:
        settings = with_default_paths(input_settings(options))
        settings = settings._replace(
            reports=ReportSettings(baseline=options.baseline, notes=options.notes)
        )
        policies, settings = find_policies(settings)
        file = settings.reports.baseline or DEFAULT_FILE
        act: Callable[[_Baseline, str], int] = options.act
        status = act(_Baseline(file, settings, policies), getattr(options, "reason", None) or "")
    except (UsageError, PolicyError) as error:
        write_error("gpuward baseline", *str(error).split("\n"))
        return 2
    return status


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(prog="gpuward baseline", description=_DESCRIPTION)
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for act, name, what in (
        (_create, "create", "write all findings into a new file"),
        (
            _update,
            "update",
            "remove entries whose findings are gone; with --reason, add new and worse ones",
        ),
        (_check, "check", "say what update would change, and which entries have expired"),
    ):
        command = commands.add_parser(
            name,
            help=what,
            description=f"{what[0].upper()}{what[1:]}.",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(act=act)
        command.add_argument(
            "--baseline",
            metavar="FILE",
            help=f"the file; default: that of the policy, or {DEFAULT_FILE}",
        )
        if name != "check":
            command.add_argument(
                "--reason",
                required=name == "create",
                help="why the new entries are accepted; you can change it in the file for each",
            )
        command.add_argument("--notes", action="store_true", help="list notes too")
        add_input_options(command)
    return made


class _Baseline(NamedTuple):
    """A file with a baseline, and the run whose findings it accepts."""

    file: str
    settings: LintSettings
    policies: Policies


class _ComparedRun(NamedTuple):
    """A run, what the baseline says about it, and the text that the baseline has."""

    run: LintRun
    found: BaselineComparison
    paths: BaselinePaths
    text: str

    def kept(self, reason: str) -> list[BaselineEntry]:
        """All entries but stale ones, with the files where their findings are now.

        A level is lowered to that of the finding; with a `reason` it is raised too.
        """
        found = self.found
        entries = [entry._replace(level=located.level) for located, entry, _ in found.accepted]
        for located, entry, _ in found.worse:
            raised = entry._replace(level=located.level, reason=reason)
            entries.append(raised if reason else entry)
        return [*entries, *(match.entry for match in found.expired), *found.unseen]


def _compare(baseline: _Baseline, entries: list[BaselineEntry], text: str) -> _ComparedRun:
    done = run_linter(baseline.settings, baseline.policies)
    paths = BaselinePaths(baseline.file)
    found = compare_with_baseline(entries, done.results, paths, done.policy_of, done.today)
    if not baseline.settings.reports.notes:
        found.new[:] = [located for located in found.new if located.level != "note"]
    return _ComparedRun(done, found, paths, text)


def _create(baseline: _Baseline, reason: str) -> int:
    if os.path.lexists(baseline.file):
        raise UsageError(f"{baseline.file} exists already: gpuward baseline update changes it")
    compared = _compare(baseline, [], "")
    added, refused = _entries_for_new(compared, reason)
    try:
        with open(baseline.file, "x", encoding="utf-8", newline="") as file:
            file.write(baseline_text(added))
    except OSError as error:
        why = reason_of(error)
        raise UsageError(f"{baseline.file}: not written: {why}") from error
    _print_line(f"{baseline.file}: {_count_text(added, 'finding')} added")
    return _report_refused(compared, refused)


def _update(baseline: _Baseline, reason: str) -> int:
    compared = _compare(baseline, *read_baseline(baseline.file))
    added: list[BaselineEntry] = []
    refused = compared.found.new
    if reason:
        added, refused = _entries_for_new(compared, reason)
    else:
        refused = refused + [match.located for match in compared.found.worse]
    text = baseline_text([*compared.kept(reason), *added])
    source = Source(baseline.file, compared.text)
    try:
        write_file(FixedText(source, [(compared.text, text)]))
    except WriteError as error:
        raise UsageError(f"{baseline.file}: not written: {error}") from error
    removed = [*compared.found.stale, *compared.found.not_suppressible]
    changes = (
        f"{_count_text(added, 'finding')} added, {_count_text(removed, 'entry', 'entries')} removed"
    )
    if compared.found.moved:
        changes += f", {_count_text(compared.found.moved, 'entry', 'entries')} moved"
    if reason and compared.found.worse:
        changes += f", {_count_text(compared.found.worse, 'level')} raised"
    _print_line(f"{baseline.file}: {changes}")
    refused += [match.located for match in compared.found.not_suppressible]
    refused += [match.located for match in compared.found.expired]
    return _report_refused(compared, refused)


def _check(baseline: _Baseline, _reason: str) -> int:
    compared = _compare(baseline, *read_baseline(baseline.file))
    problems = complaints(compared.found)
    for entry, message, _ in problems:
        _print_line(f"{baseline.file}:{entry.line}: {message}")
    status = _report_refused(compared, compared.found.new)
    return max(status, int(bool(problems)))


def _entries_for_new(
    compared: _ComparedRun, reason: str
) -> tuple[list[BaselineEntry], list[LocatedFinding]]:
    """Entries for the new findings, and the findings of rules that no user may suppress."""
    if not reason.strip():
        raise UsageError("--reason must say why the findings are accepted")
    new, policy_of = compared.found.new, compared.run.policy_of
    refused = [located for located in new if not _is_suppressible(located, policy_of)]
    accepted = [located for located in new if _is_suppressible(located, policy_of)]
    return [new_entry(located, compared.paths, reason) for located in accepted], refused


def _is_suppressible(located: LocatedFinding, policy_of: PolicyOf) -> bool:
    settings = policy_of(located.file).rules.get(located.finding.rule)
    return settings is None or settings.suppressible


def _report_refused(compared: _ComparedRun, refused: list[LocatedFinding]) -> int:
    """Report what the baseline does not accept; the exit status."""
    accepted_levels = {id(located): entry.level for located, entry, _ in compared.found.worse}
    for located in refused:
        is_suppressible = _is_suppressible(located, compared.run.policy_of)
        why = "not in the baseline" if is_suppressible else "the policy lets nobody suppress it"
        if level := accepted_levels.get(id(located)):
            why = f"worse than the {level} that the baseline accepts"
        what = f"{located.finding.rule}: {located.finding.message}"
        span = located.span
        _print_line(f"{located.file}:{span.line}:{span.column}: {why}: {what}")
    failed = compared.run.results.not_evaluated
    for item in failed:
        _print_line(f"{item.file}:{item.line}:{item.column}: not evaluated: {item.message}")
    return 3 if failed else int(bool(refused))


def _count_text(things: Sized, one: str, more: str = "") -> str:
    return f"{len(things)} {one if len(things) == 1 else more or f'{one}s'}"


def _print_line(line: str) -> None:
    sys.stdout.write(printable(line) + "\n")
