"""Fix one document in its text."""

from __future__ import annotations

from typing import NamedTuple

from kubeyaml.patch import Patched, PatchError, patch
from lint.evaluation import EvaluatedDocument, Evaluator
from rules.base.json_values import Operation, Path
from rules.engine.bounds import TooManyStepsError
from rules.engine.fixing import FixResult
from rules.engine.result import EvaluationResult
from rules.finding import Finding
from sources.manifests import File

_COMMENT_MOVES = "a comment that suppresses a rule would then cover something else"


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


def fix_document(file: File, evaluator: Evaluator, item: EvaluatedDocument) -> FixedDocument | None:
    """Fix what can be fixed in a document; None if there is nothing.

    Raises NotFixedError if the fixes cannot be written into the text.
    """
    fixed, patched = _fixed_text(file, evaluator, item)
    if patched is None:
        return None
    after = item._replace(document=patched.document, result=fixed.remaining)
    if item.comments.comments:
        again = _evaluated_again(file, evaluator, patched)
        if again is None or _differ(again.result, fixed.remaining):
            raise NotFixedError(_COMMENT_MOVES, fixed.operations)
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
        raise NotFixedError(_COMMENT_MOVES, fixed.operations)
    if _count(again, finding) >= _count(item, finding):
        raise NotFixedError("the fix needs that of another finding", fixed.operations)
    return patched.text


def _fixed_text(
    file: File, evaluator: Evaluator, item: EvaluatedDocument, only: Finding | None = None
) -> tuple[FixResult, Patched | None]:
    if file.source.text != file.original.text:
        raise NotFixedError("the file writes characters as pairs of escapes, as in \\ud83d")
    try:
        fixed = evaluator.fix(item, only)
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
    file: File, evaluator: Evaluator, patched: Patched
) -> EvaluatedDocument | None:
    new = File(file.source._replace(text=patched.text))
    again = evaluator.evaluate(new, patched.document)
    return again if isinstance(again, EvaluatedDocument) else None


def _differ(one: EvaluationResult, other: EvaluationResult) -> bool:
    identities = [sorted(f.identity for f in result.findings) for result in (one, other)]
    return identities[0] != identities[1] or one.suppressed != other.suppressed


def _count(item: EvaluatedDocument, finding: Finding) -> int:
    return sum(other.identity == finding.identity for other in item.result.findings)
