"""The edits that fix one finding, for reports and editors that offer them."""

from collections.abc import Iterator
from functools import partial

from lint.evaluation import EvaluatedDocument, Evaluator, SuggestEdits
from lint.fix.changes import TextEdit, text_edits
from lint.fix.fixer import NotFixedError, fix_finding
from reports.findings import SuggestedEdit
from rules.finding import Action, Finding
from sources.manifests import File

# Every suggestion takes as long as a fix of the whole document. So many are made, or as many as
# documents of these characters together have room for, but one in any case.
_MAX_SUGGESTIONS = 50
_MAX_CHARACTERS = 1_000_000


def edit_suggester(*, notes: bool) -> SuggestEdits:
    """Finds the edits for each finding of a document, for notes only if a report shows them."""
    return partial(_suggestions, notes=notes)


def _suggestions(
    file: File, evaluator: Evaluator, item: EvaluatedDocument, *, notes: bool
) -> Iterator[tuple[SuggestedEdit, ...]]:
    """The edits for each finding of a document, in their order.

    There are none for a finding that cannot be fixed, for those beyond the bounds, for objects that
    no file has, and without `notes` for findings that are notes.
    """
    if file.source.is_rendering:
        return
    length = item.document.end - item.document.start
    left = min(_MAX_SUGGESTIONS, 1 + _MAX_CHARACTERS // max(1, length))
    for finding in item.result.findings:
        is_wanted = finding.fixable and (notes or finding.action > Action.AUDIT)
        edits = suggestion(file, evaluator, item, finding) if is_wanted and left else ()
        left -= is_wanted and left > 0
        yield tuple(_to_suggested_edit(file, edit) for edit in edits)


def suggestion(
    file: File, evaluator: Evaluator, item: EvaluatedDocument, finding: Finding
) -> tuple[TextEdit, ...]:
    """The edits that fix `finding` alone, in the text of `file`; none if it cannot be fixed."""
    start, end = item.document.start, item.document.end
    try:
        new = fix_finding(file, evaluator, item, finding)
    except NotFixedError:
        return ()
    return tuple(text_edits(file.source.text[start:end], new, start))


def _to_suggested_edit(file: File, edit: TextEdit) -> SuggestedEdit:
    line, column, byte = _line_column_and_byte(file, edit.start)
    end_line, end_column, end_byte = _line_column_and_byte(file, edit.end)
    return SuggestedEdit(
        line=line,
        column=column,
        byte=byte,
        end_line=end_line,
        end_column=end_column,
        end_byte=end_byte,
        text=edit.text,
    )


def _line_column_and_byte(file: File, offset: int) -> tuple[int, int, int]:
    """Line and column of `offset` in the text, and the column in bytes."""
    line, column = file.position(offset)
    before = file.source.text[offset - column + 1 : offset]
    return line, column, len(before.encode(errors="surrogatepass")) + 1
