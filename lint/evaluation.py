"""Evaluate the documents of a file: what the rules say, and what comments suppress."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from kubeyaml import Document
from lint.suppressions import Suppressions, find_suppressions
from policies.policy import Policy
from reports.findings import SuggestedEdit
from reports.results import InputNotEvaluated, oversized_object, too_large_object
from rules.base.json_values import Json, as_object
from rules.engine.bounds import MAX_STEPS, StepLimit, TooManyStepsError
from rules.engine.evaluation import EvaluationResult
from rules.engine.exceptions import Suppress, suppress_nothing
from rules.engine.fixing import FixResult, check, fix
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.finding import Finding
from rules.profile.context import Context
from rules.workloads.files_in_objects import has_plugin_words
from sources.manifests import File, UnparsedDocument


class FilePolicy(NamedTuple):
    """The policy for a file, its rules as they act, and the name of its own file, if it has one.

    `namespace`, if not None, is where it puts objects that name none. Equal policies of a run have
    the same `equality_key`. `cluster` is the one that the file is for; empty if it may be for any.
    """

    policy: Policy
    rules: RuleSet
    file: str
    namespace: str | None = None
    equality_key: object = None
    cluster: tuple[tuple[str, int], ...] = ()


class EvaluatedDocument(NamedTuple):
    """A document, its comments that suppress rules, and what the rules say about it."""

    document: Document
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
        for document in file.manifests():
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
        """What the rules say about one document."""
        objects = _count_objects(document.value)
        if oversized := oversized_object(file, document, self._rules.profile):
            return oversized
        comments = find_suppressions(file, document, _document_end(file, document))
        steps = StepLimit(MAX_STEPS * objects)
        try:
            result = check(document.value, self._rules, self._context, comments.suppresses, steps)
        except TooManyStepsError:
            why = "its size: the rules take too many steps"
            return too_large_object(file, document, (), why)
        return EvaluatedDocument(document, objects, comments, result)

    def fix(self, evaluated: EvaluatedDocument, only: Finding | None = None) -> FixResult:
        """The manifest of a document with its fixes, or with that of one finding `only`.

        Raises TooManyStepsError.
        """
        comments = evaluated.comments
        suppress = comments.suppresses if comments.comments else suppress_nothing
        steps = StepLimit(MAX_STEPS * evaluated.object_count)
        manifest = evaluated.document.value
        chosen = suppress if only is None else _suppress_all_but(only, suppress)
        checked = evaluated.result
        return fix(manifest, self._rules, self._context, chosen, steps=steps, checked=checked)


SuggestEdits: TypeAlias = Callable[
    [File, Evaluator, EvaluatedDocument], Iterable[tuple[SuggestedEdit, ...]]
]
"""The edits for each finding of a document, in their order: `lint.fix.suggestions`."""


def _suppress_all_but(only: Finding, suppress: Suppress) -> Suppress:
    """Suppresses what `suppress` does, and every other finding than `only`."""

    def is_suppressed(finding: Finding, active: ActiveRule) -> bool:
        return finding.identity != only.identity or suppress(finding, active)

    return is_suppressed


def _count_objects(manifest: Json) -> int:
    raw = as_object(manifest)
    items = raw.get("items")
    return len(items) if str(raw.get("kind")).endswith("List") and isinstance(items, list) else 1


def _document_end(file: File, document: Document) -> int:
    """Where the text of the document ends: at the next separator or at the end of the file."""
    after = file.source.text.find("\n---", document.place.end)
    return len(file.source.text) if after < 0 else after
