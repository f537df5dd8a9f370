"""Judge sources by a policy: the linter without its command line and its reports."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubeyaml import Document
from lint.manifests import File, Unparsed
from lint.results import Located, PassedOver, Remark, Results, Unjudged
from lint.sources import Skipped, Source, Unread
from lint.suppressions import Suppressions, suppressions
from rules.base.json_access import as_object
from rules.base.json_patch import Json, Operation
from rules.catalog import CATALOG
from rules.engine.fixing import check, fix
from rules.engine.result import EvaluationResult
from rules.policy import Policy, PolicyException, RuleSet
from rules.profile.context import Context

RULES = {rule.name: rule for rule in CATALOG}
KNOWN = frozenset(RULES)


def calm_garbage_collection() -> None:
    """Look for garbage seldom: a run makes many objects, and most live to its end."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)


class Preview(NamedTuple):
    """What fixing would make of one document."""

    file: str
    before: Json
    after: Json
    operations: list[Operation]


class Linter:
    """One run: a policy, the circumstances, and what has been found so far."""

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
        self._used: set[PolicyException] = set()

    def judge(self, inputs: Iterable[Source | Skipped | Unread]) -> None:
        """Judge every input and add what is found to the results."""
        for item in inputs:
            if isinstance(item, Source):
                self.results.files += 1
                self._judge_file(File(item))
            elif isinstance(item, Unread):
                self.results.unjudged.append(Unjudged(item.name, 0, 0, item.why))
            elif item.why:
                self.results.passed_over.append(PassedOver(item.name, item.why))

    def finish(self) -> None:
        """Report the exceptions that have run out or were of no use."""
        for exception in self.policy.exceptions:
            if exception.expired(self.context.today):
                self._remark("warning", exception, f"ran out on {exception.expires}")
            elif exception not in self._used:
                self._remark("note", exception, "accepted nothing in these files")

    def _remark(self, level: str, exception: PolicyException, what: str) -> None:
        message = f"the exception to {', '.join(exception.rules)} ({exception.reason}) {what}"
        self.results.remarks.append(Remark(level, self.results.policy, 1, 1, message))

    def _judge_file(self, file: File) -> None:
        name = file.source.name
        try:
            for document in file.manifests():
                if isinstance(document, Unparsed):
                    where = (name, document.line, document.column)
                    self.results.unjudged.append(Unjudged(*where, document.why))
                else:
                    self._judge_document(file, document)
        except Exception as error:  # noqa: BLE001  # our own bug must not hide the other files
            why = f"gpuward itself failed here, please report it: {type(error).__name__}: {error}"
            self.results.unjudged.append(Unjudged(name, 0, 0, why))

    def _judge_document(self, file: File, document: Document) -> None:
        name = file.source.name
        comments = suppressions(file, document, _end(file, document))
        verdict = check(document.value, self._rules, self.context, comments.silences)
        self.results.objects += _objects(document.value)
        self.results.pods += verdict.pods
        self.results.components += verdict.components
        self.results.suppressed += verdict.suppressed
        self.results.excepted += len(verdict.excepted)
        self._used |= verdict.used_exceptions
        for finding in verdict.findings:
            span = file.locate(document, finding.path)
            self.results.findings.append(Located(finding, RULES[finding.rule], file, span))
        self.results.unjudged.extend(_unjudged(file, document, verdict))
        self.results.remarks.extend(_remarks(file, document, comments))
        if self.preview:
            fixed = fix(document.value, self._rules, self.context, comments.silences)
            before, after = document.value, fixed.manifest
            self.previews.append(Preview(name, before, after, fixed.operations))


def _objects(manifest: Json) -> int:
    raw = as_object(manifest)
    items = raw.get("items")
    return len(items) if str(raw.get("kind")).endswith("List") and isinstance(items, list) else 1


def _end(file: File, document: Document) -> int:
    """Where the document's text ends: at the next separator, which only a comment may precede."""
    after = file.source.text.find("\n---", document.place.end)
    return len(file.source.text) if after < 0 else after


def _unjudged(file: File, document: Document, verdict: EvaluationResult) -> Iterator[Unjudged]:
    name = file.source.name
    for unreadable in verdict.malformed_fields:
        span = file.locate(document, unreadable.path)
        why = f"{unreadable.object}: {unreadable.why}"
        yield Unjudged(name, span.line, span.column, why)
    for failure in verdict.failures:
        why = f"the rule {failure.rule} failed here, please report it: {failure.error}"
        yield Unjudged(name, document.line, 1, why)


def _remarks(file: File, document: Document, comments: Suppressions) -> Iterator[Remark]:
    name = file.source.name
    for duplicate in document.duplicates:
        line, column = file.lines.at(duplicate.key_start)
        message = f"the key {str(duplicate.path[-1])!r} stands here twice: only this one counts"
        yield Remark("warning", name, line, column, message)
    for comment, message in comments.faults(KNOWN):
        line, column = file.lines.at(comment.start)
        yield Remark("warning", name, line, column, message)
