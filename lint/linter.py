"""Evaluate sources by a policy: the linter without its command line and its reports."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubeyaml import Document
from lint.kustomizations import Kustomizations
from lint.manifests import File, UnparsedDocument
from lint.not_evaluated import oversized_object, too_large, unread_parts
from lint.owners import Owners
from lint.results import InputNotEvaluated, LocatedFinding, Remark, Results, SkippedFile
from lint.sources import SkippedSource, Source, UnreadableSource
from lint.suppressions import Suppressions, find_suppressions
from rules.base.json_access import as_object, display
from rules.base.json_patch import Json, Operation
from rules.catalog import CATALOG
from rules.engine.bounds import MAX_STEPS, StepLimit, TooManyStepsError
from rules.engine.fixing import check, fix
from rules.finding import Action, Finding
from rules.policy import Policy, PolicyException, RuleSet
from rules.profile.context import Context
from rules.workloads.lists import flatten_lists
from rules.workloads.unread_requests import unread_gpu_requests

RULES = {rule.name: rule for rule in CATALOG}
RULE_NAMES = frozenset(RULES)
TEMPLATE = "a chart's template: render the chart and lint that"


def reduce_garbage_collection() -> None:
    """Collect garbage rarely: most of the many objects of a run live to its end."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)


class Preview(NamedTuple):
    """One document before and after its fixes, and what admission would then refuse it for."""

    file: str
    before: Json
    after: Json
    operations: list[Operation]
    refused: list[Finding]


class Linter:
    """One run: a policy, a context, and the results so far."""

    def __init__(
        self, policy: Policy, context: Context, *, policy_file: str = "", preview: bool = False
    ) -> None:
        self.policy = policy
        self.context = context
        self.preview = preview
        self.results = Results()
        self.results.policy = policy_file
        self.previews: list[Preview] = []
        self._rules: RuleSet = policy.rule_set()
        self._used_exceptions: set[PolicyException] = set()
        self._kustomizations = Kustomizations()
        self._file_context = context
        self._owners = Owners()

    def evaluate(self, inputs: Iterable[Source | SkippedSource | UnreadableSource]) -> None:
        """Evaluate every input and add the findings to the results."""
        for item in inputs:
            if isinstance(item, Source):
                self.results.files += 1
                self._evaluate_file(File(item))
            elif isinstance(item, UnreadableSource):
                self.results.not_evaluated.append(InputNotEvaluated(item.name, 0, 0, item.why))
            elif item.why:
                self.results.skipped.append(SkippedFile(item.name, item.why))

    def finish(self) -> None:
        """Merge what pods of one owner share; report exceptions that expired or had no effect."""
        self.results.findings = self._owners.merge(self.results.findings)
        for exception in self.policy.exceptions:
            if exception.expired(self.context.today):
                self._remark("warning", exception, f"expired on {exception.expires}")
            elif exception not in self._used_exceptions:
                self._remark("note", exception, "accepted nothing in these files")

    def _remark(self, level: str, exception: PolicyException, what: str) -> None:
        message = f"the exception to {', '.join(exception.rules)} ({exception.reason}) {what}"
        self.results.remarks.append(Remark(level, self.results.policy, 1, 1, message))

    def _evaluate_file(self, file: File) -> None:
        name = file.source.name
        self._file_context = self._kustomizations.context_of(name, self.context)
        self.results.skipped.extend(self._kustomizations.passed_over_by(name))
        try:
            for document in file.manifests():
                if isinstance(document, UnparsedDocument):
                    self._report_unparsed(file.source, document)
                else:
                    self._evaluate_document(file, document)
        except Exception as error:  # noqa: BLE001  # a bug of ours must not hide the results of other files
            why = f"gpuward itself failed here, please report it: {type(error).__name__}: {error}"
            self.results.not_evaluated.append(InputNotEvaluated(name, 0, 0, why))

    def _unread_requests(self, file: File, document: Document) -> Iterator[Remark]:
        for path, resource in unread_gpu_requests(document.value, self._rules.profile):
            span = file.locate(document, path)
            message = (
                f"{display(resource)} is in a kind in which gpuward finds no pod: "
                "the pods that its controller makes are evaluated only at admission"
            )
            yield Remark("note", file.source.name, span.line, span.column, message)

    def _report_unparsed(self, source: Source, document: UnparsedDocument) -> None:
        why = document.why
        if document.is_template:
            skipped = SkippedFile(source.name, TEMPLATE)
            if not source.is_named:
                if skipped not in self.results.skipped[-1:]:
                    self.results.skipped.append(skipped)
                return
            why = f"{TEMPLATE} ({why})"
        where = (source.name, document.line, document.column)
        self.results.not_evaluated.append(InputNotEvaluated(*where, why))

    def _evaluate_document(self, file: File, document: Document) -> None:
        name = file.source.name
        objects = _count_objects(document.value)
        self.results.objects += objects
        if oversized := oversized_object(file, document, self._rules.profile):
            self.results.not_evaluated.append(oversized)
            return
        comments = find_suppressions(file, document, _document_end(file, document))
        context, steps = self._file_context, StepLimit(MAX_STEPS * objects)
        listed = list(flatten_lists(as_object(document.value), ()))
        for raw, _ in listed:
            self._owners.add(raw, context.namespace)
        try:
            result = check(document.value, self._rules, context, comments.suppresses, steps)
        except TooManyStepsError:
            why = "its size: the rules take too many steps"
            self.results.not_evaluated.append(too_large(file, document, (), why))
            return
        self.results.pods += result.pods
        self.results.components += result.components
        self.results.quotas_and_claims += result.quotas_and_claims
        self.results.suppressed += result.suppressed
        self.results.excepted += len(result.excepted)
        self._used_exceptions |= result.used_exceptions
        for finding in result.findings:
            span = file.locate(document, finding.path)
            self.results.findings.append(LocatedFinding(finding, RULES[finding.rule], file, span))
        self.results.not_evaluated.extend(unread_parts(file, document, result))
        self.results.remarks.extend(_remarks(file, document, comments))
        if len(listed) > 1 or not result.pods:
            self.results.remarks.extend(self._unread_requests(file, document))
        if self.preview:
            steps = StepLimit(MAX_STEPS * objects)
            fixed = fix(document.value, self._rules, context, comments.suppresses, steps=steps)
            refused = [f for f in fixed.remaining.findings if f.action is Action.DENY]
            before, after = document.value, fixed.manifest
            self.previews.append(Preview(name, before, after, fixed.operations, refused))


def _count_objects(manifest: Json) -> int:
    raw = as_object(manifest)
    items = raw.get("items")
    return len(items) if str(raw.get("kind")).endswith("List") and isinstance(items, list) else 1


def _document_end(file: File, document: Document) -> int:
    """Where the text of the document ends: at the next separator or at the end of the file."""
    after = file.source.text.find("\n---", document.place.end)
    return len(file.source.text) if after < 0 else after


def _remarks(file: File, document: Document, comments: Suppressions) -> Iterator[Remark]:
    name = file.source.name
    for duplicate in document.duplicates:
        line, column = file.lines.at(duplicate.key_start)
        message = f"the key {str(duplicate.path[-1])!r} is here twice: only this one counts"
        yield Remark("warning", name, line, column, message)
    for comment, message in comments.faults(RULE_NAMES):
        line, column = file.lines.at(comment.start)
        yield Remark("warning", name, line, column, message)
