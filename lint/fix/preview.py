"""The changes that fixes would make in each object, as the JSON Patch of the webhook."""

import json
from collections.abc import Iterable
from typing import NamedTuple, TextIO

from lint.evaluation import EvaluatedDocument, Evaluator, too_large_object
from reports.results import Results
from rules.base.json_values import Json, Operation, as_object, pointer
from rules.engine.bounds import TooManyStepsError
from rules.finding import Action, Finding
from sources.manifests import File


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
        results.not_evaluated.append(too_large_object(file, item.document, (), why))
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
                "object": _object_title(preview.before),
                "patch": preview.operations,
                "refused": [_refusal_record(finding) for finding in preview.refused],
            }
            out.write(json.dumps(entry) + "\n")


def _refusal_record(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.rule,
        "container": finding.container_name,
        "pointer": pointer(finding.path),
        "message": finding.message,
        "help": finding.help,
    }


def _object_title(manifest: Json) -> str:
    raw = as_object(manifest)
    metadata = as_object(raw.get("metadata"))
    names = (metadata.get("namespace"), metadata.get("name"))
    return f"{raw.get('kind')} {'/'.join(str(name) for name in names if name)}".strip()
