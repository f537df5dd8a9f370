"""Fix the documents of a file in its text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeAlias

from kubeyaml.patch import PatchedText, PatchError, patch
from lint.evaluation import DocumentResult, EvaluatedDocument, Evaluator, objects_in
from lint.fix.changes import edits_by_hand
from policies.problems import did_you_mean
from reports.findings import to_reported_finding
from reports.results import FixedFinding, InputNotEvaluated, Results, UnfixedDocument
from rules.base.json_values import Operation, Path
from rules.catalog.index import CATALOG
from rules.engine.bounds import TooManyStepsError
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import FixResult
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.finding import Action, Finding, FixScope
from sources.manifests import File
from sources.sources import Source, UsageError

_COMMENT_MOVES_REASON = "a comment that suppresses a rule would then cover something else"


class FixedDocument(NamedTuple):
    """The new text of a document, and what the rules say about it."""

    text: str
    after: EvaluatedDocument
    fixed: list[Finding]


class NotFixedError(Exception):
    """A document whose fixes cannot be written.

    `reason` completes "not fixed: …". `operations` are what would have to be done, as far as that
    is known, and `path` is where it fails.
    """

    def __init__(
        self, reason: str, operations: list[Operation] | None = None, path: Path = ()
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.operations = operations or []
        self.path = path


def fix_document(
    file: File, evaluator: Evaluator, item: EvaluatedDocument, min_action: Action
) -> FixedDocument | None:
    """Fix what can be fixed in a document; None if there is nothing, and no fix has failed.

    Findings with an action below `min_action` stay. Raises NotFixedError if the fixes cannot be
    written into the text.
    """
    fixed, patched = _fixed_text(file, evaluator, item, min_action=min_action)
    if patched is None:
        if not fixed.remaining.failures:
            return None
        # A rule's fix did not hold, which the report says.
        text = file.source.text[item.document.start : item.document.end]
        return FixedDocument(text, item._replace(result=fixed.remaining), [])
    document = patched.document
    after = item._replace(document=document, objects=objects_in(document), result=fixed.remaining)
    if item.comments.comments:
        again = _evaluated_again(file, evaluator, patched)
        if again is None or _results_differ(again.result, fixed.remaining):
            raise NotFixedError(_COMMENT_MOVES_REASON, fixed.operations)
        after = again
    return FixedDocument(patched.text, after, fixed.fixed)


def fix_finding(file: File, evaluator: Evaluator, item: EvaluatedDocument, finding: Finding) -> str:
    """The text of a document with the fix of one finding.

    Raises NotFixedError if the fix cannot be written into the text, and if the finding stays.
    """
    fixed, patched = _fixed_text(file, evaluator, item, finding)
    if patched is None:
        raise NotFixedError("the fix changes nothing")
    again = _evaluated_again(file, evaluator, patched)
    if again is None or again.result.suppressed != item.result.suppressed:
        raise NotFixedError(_COMMENT_MOVES_REASON, fixed.operations)
    if _count_of_finding(again, finding) >= _count_of_finding(item, finding):
        raise NotFixedError("the fix needs that of another finding", fixed.operations)
    return patched.text


def _fixed_text(
    file: File,
    evaluator: Evaluator,
    item: EvaluatedDocument,
    only: Finding | None = None,
    min_action: Action = Action.AUDIT,
) -> tuple[FixResult, PatchedText | None]:
    if file.source.text != file.original.text:
        raise NotFixedError("the file writes characters as pairs of escapes, as in \\ud83d")
    try:
        fixed = evaluator.fix(item, only, min_action)
    except TooManyStepsError:
        raise NotFixedError("the fixes take too many steps") from None
    if not fixed.operations:
        return fixed, None
    try:
        text = file.source.text
        return fixed, patch(text, fixed.operations, fixed.manifest, item.document)
    except PatchError as error:
        raise NotFixedError(error.reason, fixed.operations, error.path) from None


def _evaluated_again(
    file: File, evaluator: Evaluator, patched: PatchedText
) -> EvaluatedDocument | None:
    new = File(file.source._replace(text=patched.text))
    again = evaluator.evaluate(new, patched.document)
    return again if isinstance(again, EvaluatedDocument) else None


def _results_differ(one: EvaluationResult, other: EvaluationResult) -> bool:
    identities = [sorted(f.identity for f in result.findings) for result in (one, other)]
    return identities[0] != identities[1] or one.suppressed != other.suppressed


def _count_of_finding(item: EvaluatedDocument, finding: Finding) -> int:
    return sum(other.identity == finding.identity for other in item.result.findings)


class FixedText(NamedTuple):
    """The text of a file before and after its fixes, cut where documents begin and end."""

    source: Source
    old_and_new_pieces: list[tuple[str, str]]

    @property
    def new(self) -> str:
        """The whole new text."""
        return "".join(new for _, new in self.old_and_new_pieces)

    @property
    def is_changed(self) -> bool:
        """Return whether there is anything to write."""
        return any(old != new for old, new in self.old_and_new_pieces)


class WriteError(Exception):
    """A file that could not be written; the message says why."""


DeliverText: TypeAlias = Callable[[FixedText], bool]
"""Takes the text of a file, changed or not, and says whether the file has it now.

May raise WriteError.
"""


class _DocumentOutcome(NamedTuple):
    """A document before and after its fixes, and where it is in the new text."""

    before: DocumentResult
    after: DocumentResult
    shift: int
    lines: int
    fixed: tuple[FixedFinding, ...] = ()


class Fixer:
    """Fixes files one after the other, and gives their new texts to `deliver`.

    Findings with an action below `min_action` stay: a user should not have to look for the reason
    of a change among what the report does not show.
    """

    def __init__(self, deliver: DeliverText, min_action: Action = Action.AUDIT) -> None:
        self._deliver = deliver
        self._min_action = min_action

    def fix_file(
        self, file: File, evaluator: Evaluator, results: Results
    ) -> Iterator[tuple[File, DocumentResult]]:
        """Fix what can be fixed in `file`; then yield what remains, with the file as it is now."""
        editing = _FileEditing(file, evaluator, self._min_action)
        for item in evaluator.evaluate_file(file):
            editing.add(item)
        text = editing.text
        is_delivered = self._is_delivered(text, results)
        for refused, lines in editing.not_fixed:
            line = refused.line + lines * is_delivered
            results.not_fixed.append(refused._replace(line=line))
        if not is_delivered:
            yield from ((file, outcome.before) for outcome in editing.outcomes)
            return
        new_file = File(file.source._replace(text=text.new)) if text.is_changed else file
        for outcome in editing.outcomes:
            results.fixed.extend(outcome.fixed)
            yield new_file.shifted(outcome.shift), _with_new_line(outcome.after, outcome.lines)

    def _is_delivered(self, text: FixedText, results: Results) -> bool:
        try:
            return self._deliver(text)
        except WriteError as error:
            results.not_written.append(InputNotEvaluated(text.source.name, 0, 0, str(error)))
            return False


def _with_new_line(item: DocumentResult, lines: int) -> DocumentResult:
    """`item` with its line in the new text; the offsets of documents are shifted with the file."""
    return item if isinstance(item, EvaluatedDocument) else item._replace(line=item.line + lines)


class _FileEditing:
    """The new text of one file, as far as its documents have been fixed."""

    def __init__(self, file: File, evaluator: Evaluator, min_action: Action) -> None:
        self.outcomes: list[_DocumentOutcome] = []
        # Each with how many lines it moves down when the file is written.
        self.not_fixed: list[tuple[UnfixedDocument, int]] = []
        self._file = file
        self._evaluator = evaluator
        self._min_action = min_action
        self._pieces: list[tuple[str, str]] = []
        self._copied = 0
        self._shift = self._lines = 0

    @property
    def text(self) -> FixedText:
        """The text before and after all fixes."""
        rest = self._file.source.text[self._copied :]
        return FixedText(self._file.source, [*self._pieces, (rest, rest)])

    def add(self, item: DocumentResult) -> None:
        """Fix the next document of the file, if it can be fixed."""
        outcome = _DocumentOutcome(item, item, self._shift, self._lines)
        if isinstance(item, EvaluatedDocument) and any(self._fixable(item)):
            outcome = self._fixed(item) or outcome
        self.outcomes.append(outcome)

    def _fixed(self, item: EvaluatedDocument) -> _DocumentOutcome | None:
        try:
            fixed = fix_document(self._file, self._evaluator, item, self._min_action)
        except NotFixedError as error:
            self._refuse(item, error)
            return None
        if fixed is None:
            return None
        document, text = item.document, self._file.source.text
        old = text[document.start : document.end]
        start, lines = document.start + self._shift, document.line - 1 + self._lines
        gap = text[self._copied : document.start]
        self._pieces += [(gap, gap), (old, fixed.text)]
        self._copied = document.end
        self._shift += len(fixed.text) - len(old)
        self._lines += fixed.text.count("\n") - old.count("\n")
        name = self._file.source.name
        findings = tuple(
            FixedFinding(name, to_reported_finding(finding)) for finding in fixed.fixed
        )
        return _DocumentOutcome(item, fixed.after, start, lines, findings)

    def _fixable(self, item: EvaluatedDocument) -> Iterator[Finding]:
        """The findings of a document that are to be fixed."""
        least = self._min_action
        return (f for f in item.result.findings if f.fixable and f.action >= least)

    def _refuse(self, item: EvaluatedDocument, error: NotFixedError) -> None:
        span = self._file.span_of_path(item.document, error.path)
        rules = sorted({finding.rule for finding in self._fixable(item)})
        by_hand = tuple(edits_by_hand(error.operations))
        refused = UnfixedDocument(
            file=self._file.source.name,
            line=span.line,
            column=span.column,
            rules=tuple(rules),
            reason=error.reason,
            edits_by_hand=by_hand,
        )
        self.not_fixed.append((refused, self._lines))


def select_fixes(rule_set: RuleSet, names: Collection[str], *, unsafe: bool) -> RuleSet:
    """`rule_set` with only the fixes of the rules `names`, or of all rules if there are none.

    Unsafe fixes are made as well if the user says so, except those that the policy forbids. All
    rules still report. Raises UsageError for a rule that does not exist.
    """
    known = {rule.name for rule in CATALOG}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, "gpuward rules lists them all")
            raise UsageError(f"--rule: there is no rule {name!r}; {hint}")

    def scope(active: ActiveRule) -> FixScope:
        if names and active.rule.name not in names:
            return FixScope.NONE
        return FixScope.ALL if unsafe and active.fix_scope is FixScope.SAFE else active.fix_scope

    rules = tuple(active._replace(fix_scope=scope(active)) for active in rule_set.rules)
    return rule_set._replace(rules=rules)
