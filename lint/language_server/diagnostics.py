"""Turn results into diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol.types import CodeDescription, Diagnostic, DiagnosticSeverity, Range

from lint.language_server.analysis import Analysis, FoundHere
from lint.language_server.positions import Positions
from lint.report import rule_page
from policies.loading import PolicyError, load_policy
from terminal import printable

SOURCE = "gpuward"
# Editors get slow with more.
_MAX_DIAGNOSTICS = 1_000
_SEVERITIES = {
    "error": DiagnosticSeverity.Error,
    "warning": DiagnosticSeverity.Warning,
    "note": DiagnosticSeverity.Information,
}
_POLICY = "policy"
_PROBLEM = re.compile(rf"{_POLICY}:(\d+):(\d+): (.*)")


def manifest_diagnostics(
    analysis: Analysis, positions: Positions, *, notes: bool
) -> list[Diagnostic]:
    """The diagnostics of a document with manifests; notes that no rule makes if `notes`."""
    found = list(_manifest_diagnostics(analysis, positions, notes=notes))
    if len(found) > _MAX_DIAGNOSTICS:
        hidden = len(found) - _MAX_DIAGNOSTICS
        found[_MAX_DIAGNOSTICS:] = [
            _message(f"{hidden} more are not shown: gpuward lint shows them", "warning", positions)
        ]
    return found


def policy_diagnostics(text: str, positions: Positions) -> list[Diagnostic]:
    """The diagnostics of a policy file: its mistakes, as `gpuward policy check` reports them."""
    try:
        load_policy(text, _POLICY)
    except PolicyError as error:
        found = []
        for line in str(error).split("\n"):
            problem = _PROBLEM.match(line)
            where = (int(problem[1]), int(problem[2])) if problem else (0, 0)
            what = problem[3] if problem else line.removeprefix(f"{_POLICY}: ")
            found.append(_message(what, "error", positions, *where))
        return found
    return []


def range_of(found: FoundHere, positions: Positions) -> Range:
    """Where a finding is in the text that the editor shows."""
    start, end = map(found.file.original_offset, found.located.span[:2])
    return positions.between(start, max(start, end))


def _manifest_diagnostics(
    analysis: Analysis, positions: Positions, *, notes: bool
) -> Iterator[Diagnostic]:
    results = analysis.results
    if analysis.problem:
        yield _message(analysis.problem, "error", positions)
    for failed in results.not_evaluated:
        text = f"not evaluated: {failed.message}"
        yield _message(text, "error", positions, failed.line, failed.column)
    for skipped in results.skipped:
        yield _message(f"not evaluated: {skipped.why}", "note", positions)
    for remark in results.remarks:
        if remark.level != "note" or notes:
            yield _message(remark.message, remark.level, positions, remark.line, remark.column)
    for found in analysis.found:
        finding = found.finding
        parts = (finding.message, f"Help: {finding.help}" if finding.help else "")
        yield Diagnostic(
            range_of(found, positions),
            printable(". ".join(filter(None, parts))),
            severity=_SEVERITIES[found.located.level],
            code=finding.rule,
            code_description=CodeDescription(rule_page(finding.rule)),
            source=SOURCE,
        )


def _message(
    text: str, level: str, positions: Positions, line: int = 0, column: int = 0
) -> Diagnostic:
    """A diagnostic from a line and a column, both from 1, to the end of the line."""
    return Diagnostic(
        positions.rest_of_line(max(line, 1), max(column, 1)),
        printable(text),
        severity=_SEVERITIES[level],
        source=SOURCE,
    )
