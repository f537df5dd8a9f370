"""Ask the rules about a manifest, and let them mend it.

`check` speaks of the manifest as it is given. `fix` works through the rules in order, each
seeing what the ones before it have mended, and returns the JSON Patch. A rule that raises
is our own fault: it is named in the result and never decides about the user's object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple

from rules.asking import Asking, Failure, Suppress, Verdict, never
from rules.context import Context
from rules.document import EditError, Json, Operation, apply
from rules.policy import ActiveRule, RuleSet
from rules.rule import Finding

__all__ = ["Failure", "Fixed", "Suppress", "Verdict", "check", "fix", "introduced"]


# Far more than rules that build on each other need.
MOST_PASSES = 8


class Fixed(NamedTuple):
    """A mended manifest, the operations that lead to it, what was fixed and what remains."""

    manifest: Json
    operations: list[Operation]
    fixed: list[Finding]
    remaining: Verdict


def check(
    manifest: Json, rule_set: RuleSet, context: Context, suppress: Suppress = never
) -> Verdict:
    """What is wrong with `manifest`. `suppress` may silence findings (the linter's comments)."""
    asking = Asking(manifest, rule_set, context, suppress)
    for _, active in asking.rules:
        asking.ask(active)
    return asking.verdict


def fix(
    manifest: Json,
    rule_set: RuleSet,
    context: Context,
    suppress: Suppress = never,
    only: Collection[str] | None = None,
) -> Fixed:
    """Mend what may be mended; with `only`, nothing but containers of these names.

    A rule whose fix does not cure its own finding is barred, named in the failures, and
    the work is done again without its fixes.
    """
    if suppress is not never:
        suppress = _steady(manifest, rule_set, context, suppress)
    barred: dict[str, Failure] = {}
    while True:
        asking = Asking(manifest, rule_set, context, suppress)
        if not asking.rules:
            return Fixed(manifest, [], [], asking.verdict)
        fixing = _Fixing(asking, manifest, only)
        troubled = fixing.run(barred)
        if not troubled:
            remaining = fixing.verdict
            failures = (*barred.values(), *fixing.failures, *remaining.failures)
            remaining.failures = list({failure.rule: failure for failure in failures}.values())
            return Fixed(fixing.manifest, fixing.operations, fixing.fixed, remaining)
        barred.update(troubled)


def _steady(manifest: Json, rule_set: RuleSet, context: Context, suppress: Suppress) -> Suppress:
    """`suppress` as it judges `manifest` itself: fixes move the places that it knows."""
    answers: dict[str, set[bool]] = {}

    def first(finding: Finding, active: ActiveRule) -> bool:
        answer = suppress(finding, active)
        answers.setdefault(finding.identity, set()).add(answer)
        return answer

    def later(finding: Finding, active: ActiveRule) -> bool:
        known = answers.get(finding.identity, set())
        return next(iter(known)) if len(known) == 1 else suppress(finding, active)

    check(manifest, rule_set, context, first)
    return later


def introduced(new: Iterable[Finding], old: Iterable[Finding]) -> list[Finding]:
    """The findings of `new` that `old` did not have, as multisets of identity and message."""
    known = Counter((finding.identity, finding.message) for finding in old)
    fresh = []
    for finding in new:
        mark = (finding.identity, finding.message)
        if known[mark]:
            known[mark] -= 1
        else:
            fresh.append(finding)
    return fresh


class _Fixing:
    """One attempt at fixing a manifest, rule by rule."""

    def __init__(self, asking: Asking, manifest: Json, only: Collection[str] | None) -> None:
        self.manifest = manifest
        self.operations: list[Operation] = []
        self.fixed: list[Finding] = []
        self.left: dict[str, list[Finding]] = {}
        self.failures: list[Failure] = []
        self._only = only
        self._asking = asking

    @property
    def verdict(self) -> Verdict:
        """What the rules say of the manifest as it is now."""
        return self._asking.verdict

    def run(self, barred: dict[str, Failure]) -> dict[str, Failure]:
        """Fix until there is nothing more to fix; the rules whose fixes do not hold, and why.

        One fix may open the way for that of a rule which has been asked before, so rules are
        asked in passes. A rule whose edits do not fit is added to `barred`.
        """
        for _ in range(MOST_PASSES):
            before = len(self.fixed)
            self._pass(barred)
            if len(self.fixed) == before:
                return self._relapsed()
            self._begin_again()
        return {f.rule: Failure(f.rule, "its fixes come to no end") for f in self.fixed[before:]}

    def _pass(self, barred: dict[str, Failure]) -> None:
        asking = self._asking
        mended = {finding.identity for finding in self.fixed}
        waiting = list(asking.rules)[::-1]
        while waiting:
            number, active = waiting.pop()
            found = asking.ask(active)
            if not found or active.rule.name in barred:
                continue
            chosen = [f for f in found if self._chosen(f)]
            if mended:
                chosen = [finding for finding in chosen if finding.identity not in mended]
            if not chosen:
                continue
            edits = [edit for finding in chosen if finding.fix for edit in finding.fix.edits]
            try:
                self.manifest, operations = apply(self.manifest, edits)
            except EditError as error:
                barred[active.rule.name] = Failure(active.rule.name, f"EditError: {error}")
                continue
            self.operations += operations
            self.fixed += chosen
            self.left[active.rule.name] = [f for f in found if not self._chosen(f)]
            waiting = self._begin_again(after=number)

    def _begin_again(self, after: int = -1) -> list[tuple[int, ActiveRule]]:
        """Go on with the mended manifest; the rules that are yet to be asked, the next one last.

        They must know what the ones before leave to them.
        """
        self.failures += self.verdict.failures
        self._asking.again(self.manifest)
        rules = self._asking.rules
        for number, active in rules:
            if number <= after and active.rule.instead_of:
                self._asking.ask(active)
        return [rule for rule in reversed(rules) if rule[0] > after]

    def _relapsed(self) -> dict[str, Failure]:
        if not self.fixed or not self.verdict.findings:
            return {}
        mended = {finding.identity for finding in self.fixed}
        return {
            finding.rule: Failure(finding.rule, f"the fix does not cure {finding.identity}")
            for finding in introduced(self.verdict.findings, chain(*self.left.values()))
            if finding.identity in mended
        }

    def _chosen(self, finding: Finding) -> bool:
        return finding.fixable and (self._only is None or finding.container_name in self._only)
