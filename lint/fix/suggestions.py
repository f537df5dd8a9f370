"""What fixes would change: in each object, and for each finding."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple, TextIO

from lint.evaluation import EvaluatedDocument, Evaluator, Suggest
from lint.fix.changes import TextEdit, text_edits
from lint.fix.fixer import NotFixedError, fix_finding
from reports.findings import SuggestedEdit
from reports.results import Results, too_large
from rules.base.json_values import Json, Operation, as_object, pointer
from rules.engine.bounds import TooManyStepsError
from rules.finding import Action, Finding
from sources.manifests import File

# The edits that fix one finding, for reports and editors that offer them.

# Every suggestion takes as long as a fix of the whole document. So many are made, or as many as
# documents of these characters together have room for, but one in any case.
_MAX_SUGGESTIONS = 50
_MAX_CHARACTERS = 1_000_000


def suggester(*, notes: bool) -> Suggest:
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
        yield tuple(
            SuggestedEdit(*_position(file, edit.start), *_position(file, edit.end), edit.text)
            for edit in edits
        )


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


def _position(file: File, offset: int) -> tuple[int, int, int]:
    """Line and column of `offset` in the text, and the column in bytes."""
    line, column = file.position(offset)
    before = file.source.text[offset - column + 1 : offset]
    return line, column, len(before.encode(errors="surrogatepass")) + 1


# What fixes would change in each object, as the JSON Patch of the webhook.


class Preview(NamedTuple):
    """One document before and after its fixes, and what admission would then refuse it for."""

    file: str
    before: Json
    after: Json
    operations: list[Operation]
    refused: list[Finding]


def add_preview(
    previews: list[Preview],
    results: Results,
    file: File,
    item: EvaluatedDocument,
    evaluator: Evaluator,
) -> None:
    """Add what the fixes of a document in `file` would change; to `results`, if that is unknown."""
    value = item.document.value
    try:
        fixed = evaluator.fix(item)
    except TooManyStepsError:
        why = "its size: the fixes take too many steps"
        results.not_evaluated.append(too_large(file, item.document, (), why))
        return
    refused = [f for f in fixed.remaining.findings if f.action is Action.DENY]
    previews.append(Preview(file.source.name, value, fixed.manifest, fixed.operations, refused))


def write_patch(out: TextIO, previews: Iterable[Preview]) -> None:
    """Write one JSON object a line for each object that is fixed or refused.

    It has the file, the object, the patch, and what is refused about the object that the patch
    makes.
    """
    for preview in previews:
        if preview.operations or preview.refused:
            entry = {
                "file": preview.file,
                "object": _title(preview.before),
                "patch": preview.operations,
                "refused": [_refusal(finding) for finding in preview.refused],
            }
            out.write(json.dumps(entry) + "\n")


def _refusal(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.rule,
        "container": finding.container_name,
        "pointer": pointer(finding.path),
        "message": finding.message,
        "help": finding.help,
    }


def _title(manifest: Json) -> str:
    raw = as_object(manifest)
    metadata = as_object(raw.get("metadata"))
    names = (metadata.get("namespace"), metadata.get("name"))
    return f"{raw.get('kind')} {'/'.join(str(name) for name in names if name)}".strip()
