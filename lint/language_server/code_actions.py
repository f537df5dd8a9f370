"""Actions that an editor offers for the findings at the cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    CodeActionParams,
    Diagnostic,
    Range,
    WorkspaceEdit,
)

from lint.evaluation import EvaluatedDocument
from lint.fix.changes import TextEdit
from lint.language_server.diagnostics import Analysis, FindingInText, Positions, range_of
from sources.manifests import File, UnparsedDocument

_TRIAL_REASON = "a reason"


def suppression_edit(analysis: Analysis, found: FindingInText) -> TextEdit | None:
    """The edit that adds a comment, in which only the reason is missing.

    Until the user writes the reason, the comment has no effect. None if the policy forbids the
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
        tried = edit.text.replace(comment, f"{comment}{_TRIAL_REASON}")
        if _edit_suppresses(found, edit._replace(text=tried)):
            return edit
    return None


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - (text[end - 1 : end] == "\r")


def _edit_suppresses(found: FindingInText, edit: TextEdit) -> bool:
    """Return whether the text after `edit` has the same values, and the finding is suppressed."""
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


FIX_ALL = "source.fixAll.gpuward"
# Each fix takes as long as that of a whole manifest.
_MAX_FINDINGS = 20
# Editors ask at every move of the cursor. Fixes of longer texts are made only on demand.
_MAX_CHARACTERS = 200_000

MakeEdit = Callable[[Sequence[TextEdit]], WorkspaceEdit]


def code_actions(
    analysis: Analysis, positions: Positions, params: CodeActionParams, make_edit: MakeEdit
) -> list[CodeAction]:
    """The actions for the findings on the lines of a range, and that which fixes all."""
    wanted = [_kind_name(kind) for kind in params.context.only or ()]
    actions: list[CodeAction] = []
    if _wants_kind(wanted, CodeActionKind.QuickFix):
        here = islice(_findings_on_lines(analysis, positions, params.range), _MAX_FINDINGS)
        for one in here:
            actions += _quick_fixes(
                analysis, one, _diagnostics_at_cursor(one, params, positions), make_edit
            )
    is_short = len(analysis.text) <= _MAX_CHARACTERS
    if _wants_kind(wanted, FIX_ALL) and (wanted or is_short) and (edits := analysis.fix_all()):
        title = "gpuward: make all safe fixes in this file"
        actions.append(CodeAction(title, FIX_ALL, edit=make_edit(edits)))
    return actions


def _wants_kind(wanted: Sequence[str], kind: str) -> bool:
    """Return whether an editor that asks for the kinds `wanted` takes `kind`.

    It takes every kind if it asks for none.
    """
    name = _kind_name(kind)
    return not wanted or any(name == one or name.startswith(f"{one}.") for one in wanted)


def _kind_name(kind: CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, CodeActionKind) else kind


def _findings_on_lines(
    analysis: Analysis, positions: Positions, lines: Range
) -> Iterator[FindingInText]:
    for found in analysis.found:
        place = range_of(found, positions)
        if place.start.line <= lines.end.line and lines.start.line <= place.end.line:
            yield found


def _diagnostics_at_cursor(
    found: FindingInText, params: CodeActionParams, positions: Positions
) -> list[Diagnostic]:
    """The diagnostics of the finding, among those that the editor has at the cursor."""
    place, rule = range_of(found, positions), found.finding.rule
    return [d for d in params.context.diagnostics if d.code == rule and d.range == place]


def _quick_fixes(
    analysis: Analysis, found: FindingInText, diagnostics: list[Diagnostic], make_edit: MakeEdit
) -> Iterator[CodeAction]:
    rule, fix = found.finding.rule, found.finding.fix
    if fix and (edits := analysis.fix(found)):
        review = "" if fix.safe else " (review: this takes something away, or decides it)"
        yield CodeAction(
            f"{rule}: {fix.title}{review}",
            CodeActionKind.QuickFix,
            diagnostics=diagnostics,
            is_preferred=fix.safe or None,
            edit=make_edit(edits),
        )
    if edit := suppression_edit(analysis, found):
        yield CodeAction(
            f"{rule}: add a comment that suppresses it; write the reason behind it",
            CodeActionKind.QuickFix,
            diagnostics=diagnostics,
            edit=make_edit([edit]),
        )
