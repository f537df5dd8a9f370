"""What the linter could not evaluate in a document, with its place."""

from __future__ import annotations

from collections.abc import Iterator

from kubeyaml import Document
from reports.results import InputNotEvaluated, Results
from rules.base.json_access import as_object
from rules.base.json_values import Path
from rules.engine.bounds import oversized_reason
from rules.engine.result import EvaluationResult
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects
from rules.workloads.lists import flatten_lists
from sources.manifests import File, UnparsedDocument
from sources.sources import SkippedFile, Source

TEMPLATE = "a chart's template: lint the chart with --render"


def report_unparsed(results: Results, source: Source, document: UnparsedDocument) -> None:
    """Report a document that is no YAML. A chart's template that nobody named is only skipped."""
    why = document.why
    if document.is_template:
        skipped = SkippedFile(source.name, TEMPLATE)
        if not source.is_named:
            if skipped not in results.skipped[-1:]:
                results.skipped.append(skipped)
            return
        why = f"{TEMPLATE} ({why})"
    where = (source.name, document.line, document.column)
    results.not_evaluated.append(InputNotEvaluated(*where, why))


def oversized_object(file: File, document: Document, profile: Profile) -> InputNotEvaluated | None:
    """The first object of the document that admission would not evaluate for its size.

    Objects in which there is nothing to evaluate, such as definitions of resources and dashboards,
    may be of any size.
    """
    size = document.place.end - document.place.start
    for raw, path in flatten_lists(as_object(document.value), ()):
        why = oversized_reason(raw, size)
        if why and next(find_subjects({**raw}, profile), None) is not None:
            return too_large(file, document, path, why)
    return None


def too_large(file: File, document: Document, path: Path, why: str) -> InputNotEvaluated:
    """The object at `path`, which is not evaluated because of `why`."""
    span = file.locate(document, path)
    why = f"gpuward cannot evaluate this object because of {why}"
    return InputNotEvaluated(file.source.name, span.line, span.column, why)


def unread_parts(
    file: File, document: Document, result: EvaluationResult
) -> Iterator[InputNotEvaluated]:
    """The fields that rules could not read, and the rules that failed."""
    name = file.source.name
    for field in result.malformed_fields:
        span = file.locate(document, field.path)
        why = f"{field.object}: {field.why}"
        yield InputNotEvaluated(name, span.line, span.column, why)
    for failure in result.failures:
        line, _ = file.position(document.start)
        why = f"the rule {failure.rule} failed here, please report it: {failure.error}"
        yield InputNotEvaluated(name, line, 1, why)
