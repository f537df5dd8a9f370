"""The comment that suppresses a finding."""

from __future__ import annotations

from lint.evaluation import EvaluatedDocument
from lint.fix.changes import TextEdit
from lint.language_server.analysis import Analysis, FoundHere
from sources.manifests import File, UnparsedDocument

_TRIED_REASON = "a reason"


def suppression(analysis: Analysis, found: FoundHere) -> TextEdit | None:
    """The edit that adds a comment, in which only the reason is missing.

    Until somebody writes the reason, the comment has no effect. None if the policy forbids the
    comment, and where the text has no place for one, as in JSON.
    """
    active = analysis.active_rule(found.finding.rule)
    if active is None or not active.suppressible:
        return None
    if found.item.document.place.style == "flow":
        return None  # most likely JSON, which has no comments
    text, span = found.file.source.text, found.located.span
    line_start = span.start - span.column + 1
    line_end = _line_end(text, span.start)
    indentation = text[line_start : span.start][: span.column - 1]
    indentation = indentation[: len(indentation) - len(indentation.lstrip(" "))]
    comment = f"# gpuward: ignore[{found.finding.rule}] "
    line_break = "\r\n" if text[line_end : line_end + 1] == "\r" else "\n"
    for edit in (
        TextEdit(line_end, line_end, f" {comment}"),
        TextEdit(line_start, line_start, f"{indentation}{comment}{line_break}"),
    ):
        tried = edit.text.replace(comment, f"{comment}{_TRIED_REASON}")
        if _suppresses(found, edit._replace(text=tried)):
            return edit
    return None


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - (text[end - 1 : end] == "\r")


def _suppresses(found: FoundHere, edit: TextEdit) -> bool:
    """Whether the text after `edit` has the same values, and the finding is suppressed."""
    before, text = found.item, found.file.source.text
    start, end = before.document.start, before.document.end
    if not start <= edit.start <= end:
        return False
    new = text[start : edit.start] + edit.text + text[edit.start : end]
    file = File(found.file.source._replace(text=new))
    documents = list(file.manifests())
    document = documents[0] if len(documents) == 1 else None
    if document is None or isinstance(document, UnparsedDocument):
        return False
    if document.value != before.document.value:
        return False
    after = found.evaluator.evaluate(file, document)
    return isinstance(after, EvaluatedDocument) and (
        found.finding.identity not in {f.identity for f in after.result.findings}
    )
