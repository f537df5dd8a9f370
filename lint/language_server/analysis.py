"""Evaluate the text of one document, as the linter would."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import NamedTuple

from lint.evaluation import EvaluatedDocument, Evaluator
from lint.file_trees import DISK
from lint.fix.changes import TextEdit, text_edits
from lint.fix.fixer import FixedText, Fixer
from lint.fix.selection import select_fixes
from lint.fix.suggestions import suggestion
from lint.language_server.policies import FoundPolicy, Policies, Settings
from lint.linter import Linter
from policies.loading import PolicyError
from reports.findings import LocatedFinding, SuggestedEdit, locate_finding
from reports.results import Results
from rules.engine.rule_set import ActiveRule
from rules.finding import Finding
from rules.profile.context import Context
from sources.manifests import File
from sources.sources import Source, source_of


class FoundHere(NamedTuple):
    """A finding in a text, and what is needed to fix it."""

    located: LocatedFinding
    finding: Finding
    file: File
    evaluator: Evaluator
    item: EvaluatedDocument


class Analysis:
    """What gpuward says about one version of a document.

    `found` are the findings that the user wants to see; `results` has the rest. `problem` says why
    nothing was evaluated; it is empty if something was.
    """

    def __init__(
        self, name: str, text: str, policy: FoundPolicy | None, settings: Settings, problem: str
    ) -> None:
        self.text = text
        self.problem = problem
        self.found: list[FoundHere] = []
        self.results = Results()
        self._policy = policy
        self._notes = settings.notes
        # A surrogate alone is no text, and is refused as a file with it is.
        self._source = source_of(name, text.encode(errors="surrogatepass"), DISK)
        today = datetime.datetime.now(tz=datetime.UTC).date()
        self._context = Context(today=today, namespace=settings.namespace)
        if policy:
            # Whoever chooses a fix in an editor has seen it, so all are offered.
            rules = select_fixes(policy.policy.rule_set(), (), unsafe=True)
            linter = Linter(
                policy.policy,
                self._context,
                rules=rules,
                policy_file=policy.file,
                suggest=self._keep,
            )
            linter.evaluate([self._source])
            self.results = linter.results

    def active_rule(self, name: str) -> ActiveRule | None:
        """The rule with its settings in the policy."""
        rules = self._policy.policy.rule_set().rules if self._policy else ()
        return next((active for active in rules if active.rule.name == name), None)

    def fix(self, found: FoundHere) -> tuple[TextEdit, ...]:
        """The edits that fix one finding; none if it cannot be fixed."""
        if not found.finding.fixable:
            return ()
        return suggestion(found.file, found.evaluator, found.item, found.finding)

    def fix_all(self) -> list[TextEdit]:
        """The edits that `gpuward fix` makes."""
        if self._policy is None or not isinstance(self._source, Source):
            return []
        texts: list[FixedText] = []

        def deliver(text: FixedText) -> bool:
            texts.append(text)
            return True

        linter = Linter(self._policy.policy, self._context, fixer=Fixer(deliver))
        linter.evaluate([self._source])
        edits: list[TextEdit] = []
        start = 0
        for old, new in (piece for text in texts for piece in text.pieces):
            edits += text_edits(old, new, start) if old != new else ()
            start += len(old)
        return edits

    def _keep(
        self, file: File, evaluator: Evaluator, item: EvaluatedDocument
    ) -> Iterable[tuple[SuggestedEdit, ...]]:
        """Keep a document for the fixes that a user may ask for; no edits until then."""
        for finding in item.result.findings:
            located = locate_finding(file, item.document, finding)
            if located.level != "note" or self._notes:
                self.found.append(FoundHere(located, finding, file, evaluator, item))
        return ()


def analyze(name: str, text: str, folder: str, policies: Policies, settings: Settings) -> Analysis:
    """Evaluate `text`, the file called `name`, by the policy for `folder`."""
    try:
        found = policies.find(folder)
    except PolicyError as error:
        problem = f"not evaluated, because the policy cannot be used: {error}".replace("\n", "; ")
        return Analysis(name, text, None, settings, problem)
    return Analysis(name, text, found, settings, "")
