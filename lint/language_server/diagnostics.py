"""Evaluate the text of one document as the linter would, and show the results as diagnostics."""

from __future__ import annotations

import datetime
import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticSeverity,
    Position,
    PositionEncodingKind,
    Range,
)

from lint.evaluation import EvaluatedDocument, Evaluator, FixTask
from lint.fix.changes import TextEdit, text_edits
from lint.fix.fixer import FixedText, Fixer, select_fixes
from lint.fix.suggestions import suggestion
from lint.language_server.policies import EditorPolicies, EditorSettings
from lint.linter import Linter
from policies.loading import PolicyError, load_policy, read_policy_file
from reports.findings import LocatedFinding, SuggestedEdit, locate_finding
from reports.formats import rule_page_url
from reports.results import Results
from rules.engine.rule_set import ActiveRule
from rules.finding import Action, Finding
from rules.profile.context import Context
from sources.manifests import File
from sources.policy_file import FilePolicy, OnePolicy
from sources.sources import DISK, Source, source_of
from terminal import printable


class FindingInText(NamedTuple):
    """A finding in a text, and what is needed to fix it."""

    located: LocatedFinding
    finding: Finding
    file: File
    evaluator: Evaluator
    item: EvaluatedDocument


class Analysis:
    """The results for one version of a document.

    `found` are the findings that the user wants to see; `results` has the rest. `problem` says why
    nothing was evaluated; it is empty if something was.
    """

    def __init__(
        self,
        name: str,
        text: str,
        policy: FilePolicy | None,
        settings: EditorSettings,
        problem: str,
    ) -> None:
        self.text = text
        self.problem = problem
        self.found: list[FindingInText] = []
        self.results = Results()
        self._policy = policy
        self._notes = settings.notes
        # A surrogate alone is no text, and is refused as a file with it is.
        self._source = source_of(name, text.encode(errors="surrogatepass"), DISK)
        today = datetime.datetime.now(tz=datetime.UTC).date()
        self._context = Context(today=today, namespace=settings.namespace)
        if policy:
            # A user who chooses a fix in an editor has seen it, so all are offered.
            rules = select_fixes(policy.rules, (), unsafe=True)
            linter = Linter(
                OnePolicy(policy.policy, policy.file, rules),
                self._context,
                FixTask(suggest=self._keep_findings),
            )
            linter.evaluate([self._source])
            self.results = linter.results

    def active_rule(self, name: str) -> ActiveRule | None:
        """The rule with its settings in the policy."""
        rules = self._policy.rules.rules if self._policy else ()
        return next((active for active in rules if active.rule.name == name), None)

    def fix(self, found: FindingInText) -> tuple[TextEdit, ...]:
        """The edits that fix one finding; none if it cannot be fixed."""
        if not found.finding.fixable:
            return ()
        return suggestion(found.file, found.evaluator, found.item, found.finding)

    def fix_all(self) -> list[TextEdit]:
        """The edits that `gpuward fix` makes."""
        if self._policy is None or not isinstance(self._source, Source):
            return []
        texts: list[FixedText] = []

        def deliver(text: FixedText) -> bool:
            texts.append(text)
            return True

        min_action = Action.AUDIT if self._notes else Action.WARN
        task = FixTask(fixer=Fixer(deliver, min_action))
        linter = Linter(OnePolicy(self._policy.policy), self._context, task)
        linter.evaluate([self._source])
        edits: list[TextEdit] = []
        start = 0
        for old, new in (piece for text in texts for piece in text.old_and_new_pieces):
            edits += text_edits(old, new, start) if old != new else ()
            start += len(old)
        return edits

    def _keep_findings(
        self, file: File, evaluator: Evaluator, item: EvaluatedDocument
    ) -> Iterable[tuple[SuggestedEdit, ...]]:
        """Keep a document for the fixes that a user may ask for; no edits until then."""
        for finding in item.result.findings:
            located = locate_finding(file, item.document, finding)
            if located.level != "note" or self._notes:
                self.found.append(FindingInText(located, finding, file, evaluator, item))
        return ()


def analyze(
    name: str, text: str, folder: str, policies: EditorPolicies, settings: EditorSettings
) -> Analysis:
    """Evaluate `text`, the file called `name`, by its policy; `folder` is open in the editor."""
    try:
        found = policies.find(name, folder)
    except PolicyError as error:
        problem = f"not evaluated, because the policy cannot be used: {error}".replace("\n", "; ")
        return Analysis(name, text, None, settings, problem)
    return Analysis(name, text, found, settings, "")


# The protocol knows more line breaks than YAML, and fewer than Python's splitlines.
_LINE_BREAK_PATTERN = re.compile(r"\r\n|\n|\r")
# Characters that take more than one unit; one pattern for each further unit.
_WIDE_CHARACTERS_BY_ENCODING = {
    PositionEncodingKind.Utf8: (
        "[\x80-\U0010ffff]",
        "[\u0800-\U0010ffff]",
        "[\U00010000-\U0010ffff]",
    ),
    PositionEncodingKind.Utf16: ("[\U00010000-\U0010ffff]",),
    PositionEncodingKind.Utf32: (),
}


class Positions:
    """The positions in one text, in the units that client and server have agreed on.

    All conversions take logarithmic time, also in a file that is one long line.
    """

    def __init__(self, text: str, encoding: PositionEncodingKind | str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _LINE_BREAK_PATTERN.finditer(text))]
        # Reports count only these as ends of lines.
        self._line_feeds = [0, *(match.end() for match in re.finditer("\n", text))]
        patterns = (
            () if text.isascii() else _WIDE_CHARACTERS_BY_ENCODING[PositionEncodingKind(encoding)]
        )
        self._wide = [
            array("I", (match.start() for match in re.finditer(pattern, text)))
            for pattern in patterns
        ]

    def position_at(self, offset: int) -> Position:
        """The position of the character at `offset`."""
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self._units(self._starts[line], offset))

    def range_between(self, start: int, end: int) -> Range:
        """The range between two offsets."""
        return Range(self.position_at(start), self.position_at(end))

    def offset(self, position: Position) -> int:
        """The offset of a position; of one behind the end of its line, the end of the line."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[position.line]
        characters = range(start, self.line_end(position.line) + 1)
        found = bisect_left(characters, position.character, key=lambda end: self._units(start, end))
        return min(start + found, characters[-1])

    def rest_of_line(self, line: int, column: int) -> Range:
        """The range from a line and a column, as reports count them, to the end of the line."""
        first = self._line_feeds[min(line, len(self._line_feeds)) - 1]
        start = min(first + column - 1, len(self._text))
        return self.range_between(start, max(start, self.line_end(self.position_at(start).line)))

    def line_start(self, line: int) -> int:
        """The offset of the first character of a line, whose number counts from 0."""
        return self._starts[min(line, len(self._starts) - 1)]

    def line_end(self, line: int) -> int:
        """The offset of the end of a line, without its line break."""
        if line + 1 >= len(self._starts):
            return len(self._text)
        end = self._starts[line + 1] - 1
        return end - (self._text[end - 1 : end + 1] == "\r\n")

    def _units(self, start: int, end: int) -> int:
        """Return how many units the text between two offsets takes."""
        further = (bisect_left(wide, end) - bisect_left(wide, start) for wide in self._wide)
        return end - start + sum(further)


DIAGNOSTIC_SOURCE = "gpuward"
# Editors get slow with more.
_MAX_DIAGNOSTICS = 1_000
_SEVERITIES = {
    "error": DiagnosticSeverity.Error,
    "warning": DiagnosticSeverity.Warning,
    "note": DiagnosticSeverity.Information,
}
_POLICY_NAME = "policy"
_PROBLEM_PATTERN = re.compile(rf"{_POLICY_NAME}:(\d+):(\d+): (.*)")


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


def policy_diagnostics(text: str, positions: Positions, folder: str) -> list[Diagnostic]:
    """The diagnostics of a policy file in `folder`: its mistakes, as the linter reports them."""

    def read(path: str) -> bytes:
        return read_policy_file(os.path.join(folder, path), path)

    try:
        load_policy(text, _POLICY_NAME, read_file=read)
    except PolicyError as error:
        found = []
        for line in str(error).split("\n"):
            problem = _PROBLEM_PATTERN.match(line)
            where = (int(problem[1]), int(problem[2])) if problem else (0, 0)
            what = problem[3] if problem else line.removeprefix(f"{_POLICY_NAME}: ")
            found.append(_message(what, "error", positions, *where))
        return found
    return []


def range_of(found: FindingInText, positions: Positions) -> Range:
    """Return the range of a finding in the text that the editor shows."""
    start, end = map(found.file.original_offset, found.located.span[:2])
    return positions.range_between(start, max(start, end))


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
            code_description=CodeDescription(rule_page_url(finding.rule)),
            source=DIAGNOSTIC_SOURCE,
        )


def _message(
    text: str, level: str, positions: Positions, line: int = 0, column: int = 0
) -> Diagnostic:
    """A diagnostic from a line and a column, both from 1, to the end of the line."""
    return Diagnostic(
        positions.rest_of_line(max(line, 1), max(column, 1)),
        printable(text),
        severity=_SEVERITIES[level],
        source=DIAGNOSTIC_SOURCE,
    )
