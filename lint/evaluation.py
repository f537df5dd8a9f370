"""Evaluate the documents of a file, and report what of them cannot be evaluated."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from kubeyaml import Document
from lint.suppressions import Suppressions, find_suppressions
from reports.findings import SuggestedEdit
from reports.results import InputNotEvaluated, Remark, Results
from rules.base.json_values import Json, Path, as_object
from rules.engine.bounds import MAX_STEPS, StepLimit, TooManyStepsError, oversized_reason
from rules.engine.evaluation import EvaluationResult
from rules.engine.exceptions import Suppress, suppress_nothing
from rules.engine.fixing import FixResult, check, fix
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.finding import Action, Finding
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects, flatten_lists
from rules.workloads.files_in_objects import has_plugin_words
from sources.manifests import File, UnparsedDocument
from sources.sources import TEMPLATE_REASON, SkippedSource, Source

_NOT_RENDERED_REASON = (
    "a file of a chart that helm does not render by itself; a template may include it"
)
_NO_OBJECT_REASON = "no YAML, and no object of Kubernetes: it has neither an apiVersion nor a kind"


class EvaluatedDocument(NamedTuple):
    """A document, its comments that suppress rules, and what the rules say about it.

    `objects` are those in it, each with its path; `object_count` is how many it says that it has.
    """

    document: Document
    objects: Sequence[tuple[Mapping[str, Any], Path]]
    object_count: int
    comments: Suppressions
    result: EvaluationResult


DocumentResult: TypeAlias = EvaluatedDocument | UnparsedDocument | InputNotEvaluated


class Evaluator:
    """The rules of a run and the context of one file."""

    def __init__(self, rules: RuleSet, context: Context) -> None:
        self._rules = rules
        self._context = context

    def evaluate_file(self, file: File) -> Iterator[DocumentResult]:
        """Every document of the file that has an object of Kubernetes, one at a time."""
        for document in file.manifests(reads_definitions=False):
            if isinstance(document, UnparsedDocument):
                yield document
            else:
                yield self.evaluate(file, document)

    def evaluate_values(self, file: File) -> Iterator[EvaluatedDocument | InputNotEvaluated]:
        """The documents of a file with a chart's values that rules may say something about."""
        if has_plugin_words(file.source.text):
            for document in file.values():
                yield self.evaluate(file, document)

    def evaluate(self, file: File, document: Document) -> EvaluatedDocument | InputNotEvaluated:
        """Return the result of the rules for one document."""
        objects = objects_in(document)
        object_count = _count_objects(document.value, len(objects))
        if oversized := _oversized_object(file, document, objects, self._rules.profile):
            return oversized
        comments = find_suppressions(file, document, _document_end(file, document))
        steps = StepLimit(MAX_STEPS * object_count)
        try:
            result = check(document.value, self._rules, self._context, comments.suppresses, steps)
        except TooManyStepsError:
            why = "its size: the rules take too many steps"
            return too_large_object(file, document, (), why)
        return EvaluatedDocument(document, objects, object_count, comments, result)

    def fix(
        self,
        evaluated: EvaluatedDocument,
        only: Finding | None = None,
        min_action: Action = Action.AUDIT,
    ) -> FixResult:
        """The manifest of a document with its fixes, or with that of one finding `only`.

        Findings with an action below `min_action` stay. Raises TooManyStepsError.
        """
        comments = evaluated.comments
        suppress = comments.suppresses if comments.comments else suppress_nothing
        steps = StepLimit(MAX_STEPS * evaluated.object_count)
        manifest = evaluated.document.value
        chosen = suppress if only is None else _suppress_all_but(only, suppress)
        checked = evaluated.result
        return fix(
            manifest,
            self._rules,
            self._context,
            chosen,
            steps=steps,
            checked=checked,
            min_action=min_action,
        )


SuggestEdits: TypeAlias = Callable[
    [File, Evaluator, EvaluatedDocument], Iterable[tuple[SuggestedEdit, ...]]
]
"""The edits for each finding of a document, in their order: `lint.fix.suggestions`."""


class FileFixer(Protocol):
    """Fixes a file, and yields what remains, with the file as it is now: `lint.fix.fixer`."""

    def fix_file(
        self, file: File, evaluator: Evaluator, results: Results
    ) -> Iterator[tuple[File, DocumentResult]]:
        """Yield the documents of `file` after their fixes."""


class FixTask(NamedTuple):
    """The handling of fixes in a run.

    `fixer` writes them into the files or shows them; `suggest` finds the edits for each finding, if
    a report wants them. With `preview`, the run collects JSON Patches.
    """

    fixer: FileFixer | None = None
    suggest: SuggestEdits | None = None
    preview: bool = False


def _suppress_all_but(only: Finding, suppress: Suppress) -> Suppress:
    """Suppresses what `suppress` does, and every other finding than `only`."""

    def is_suppressed(finding: Finding, active: ActiveRule) -> bool:
        return finding.identity != only.identity or suppress(finding, active)

    return is_suppressed


def objects_in(document: Document) -> list[tuple[Mapping[str, Any], Path]]:
    """The objects in a document, which may be a list of them, each with its path."""
    return [*flatten_lists(as_object(document.value), ())]


def _count_objects(manifest: Json, found: int) -> int:
    """Return how many objects a document has, in which `found` were found."""
    raw = as_object(manifest)
    items = raw.get("items")
    if str(raw.get("kind")).endswith("List") and isinstance(items, list):
        return len(items)
    return max(1, found)


def _document_end(file: File, document: Document) -> int:
    """Return where the text of the document ends: at the next separator or the end of the file."""
    after = file.source.text.find("\n---", document.place.end)
    return len(file.source.text) if after < 0 else after


def _oversized_object(
    file: File,
    document: Document,
    objects: Iterable[tuple[Mapping[str, Any], Path]],
    profile: Profile,
) -> InputNotEvaluated | None:
    """The first object of the document that admission would not evaluate for its size.

    Objects in which there is nothing to evaluate, such as definitions of resources and dashboards,
    may be of any size.
    """
    size = document.place.end - document.place.start
    for raw, path in objects:
        why = oversized_reason(raw, size)
        if why and next(find_subjects({**raw}, profile), None) is not None:
            return too_large_object(file, document, path, why)
    return None


def too_large_object(file: File, document: Document, path: Path, why: str) -> InputNotEvaluated:
    """The object at `path`, which is not evaluated because of `why`."""
    span = file.span_of_path(document, path)
    why = f"gpuward cannot evaluate this object because of {why}"
    return InputNotEvaluated(file.source.name, span.line, span.column, why)


def skipped_document(
    source: Source, document: UnparsedDocument, *, renders: bool = False
) -> SkippedSource | None:
    """The file `source` as it is skipped for a document that is no YAML; None if it is not.

    A chart's template is skipped, and what can be no object of Kubernetes, in files that the
    user has not named. `renders`: the run renders charts.
    """
    if source.is_named or source.is_rendering:
        return None
    if document.is_template and renders:
        return SkippedSource(source.name, _NOT_RENDERED_REASON)
    if document.is_template:
        return SkippedSource(source.name, TEMPLATE_REASON, needs_rendering=True)
    return None if document.may_be_object else SkippedSource(source.name, _NO_OBJECT_REASON)


def report_unparsed(
    results: Results, source: Source, document: UnparsedDocument, *, renders: bool = False
) -> None:
    """Report a document that is no YAML, if it is not one to be skipped.

    `renders`: the run renders charts.
    """
    if skipped := skipped_document(source, document, renders=renders):
        if skipped not in results.skipped[-1:]:
            results.skipped.append(skipped)
        return
    why = f"{TEMPLATE_REASON} ({document.why})" if document.is_template else document.why
    unread = InputNotEvaluated(source.name, document.line, document.column, why)
    report_unread_inputs(results, source, [unread])


def report_unread_inputs(
    results: Results, source: Source, inputs: Iterable[InputNotEvaluated]
) -> None:
    """Report what of `source` is no YAML, or has other types than Kubernetes gives its fields.

    A manifest in a text or a script is often a pattern with something to fill in: there it is a
    warning.
    """
    if not source.is_embedded:
        results.not_evaluated.extend(inputs)
        return
    for unread in inputs:
        message = f"not evaluated: {unread.message}"
        results.remarks.append(Remark("warning", unread.file, unread.line, unread.column, message))


def inputs_with_malformed_fields(
    file: File, document: Document, result: EvaluationResult
) -> Iterator[InputNotEvaluated]:
    """The fields that rules could not read."""
    name = file.source.name
    for field in result.malformed_fields:
        span = file.span_of_path(document, field.path)
        why = f"{field.object}: {field.why}"
        yield InputNotEvaluated(name, span.line, span.column, why)


def inputs_with_failed_rules(
    file: File, document: Document, result: EvaluationResult
) -> Iterator[InputNotEvaluated]:
    """The rules that failed."""
    name = file.source.name
    for failure in result.failures:
        line, _ = file.position(document.start)
        why = f"the rule {failure.rule} failed here, please report it: {failure.error}"
        yield InputNotEvaluated(name, line, 1, why)
