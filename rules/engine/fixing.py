"""Check a manifest by the rules of a policy, and fix it.

`check` reports on the manifest as given. `fix` runs the rules in order, each on the manifest as
the fixes of the rules before it left it, and returns a JSON Patch. A rule that raises is a bug of
gpuward: the result names it, and it never decides about a user's object.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import NamedTuple

from rules.base.json_patch import EditError, Json, Operation, apply
from rules.engine.bounds import StepLimit
from rules.engine.evaluation import Evaluation
from rules.engine.result import EvaluationResult, RuleFailure, introduced
from rules.engine.suppression import Suppress, suppress_nothing
from rules.finding import Finding
from rules.policy import ActiveRule, RuleSet
from rules.profile.context import Context

# Far more passes than rules that build on each other need.
MAX_PASSES = 8


class FixResult(NamedTuple):
    """A fixed manifest.

    `operations` are the JSON Patch from the given manifest to `manifest`; `fixed` are the
    findings that it fixes, `remaining` what the rules say about `manifest`.
    """

    manifest: Json
    operations: list[Operation]
    fixed: list[Finding]
    remaining: EvaluationResult


def check(
    manifest: Json,
    rule_set: RuleSet,
    context: Context,
    suppress: Suppress = suppress_nothing,
    steps: StepLimit | None = None,
) -> EvaluationResult:
    """What is wrong with `manifest`, which stays as it is.

    `suppress` decides which findings are suppressed: the linter's comments. Raises only
    TooManyStepsError, if `steps` runs out; a rule that fails is in `failures` of the result.
    """
    evaluation = Evaluation(manifest, rule_set, context, suppress, steps or StepLimit())
    for _, active in evaluation.rules:
        evaluation.run_rule(active)
    return evaluation.result


def fix(
    manifest: Json,
    rule_set: RuleSet,
    context: Context,
    suppress: Suppress = suppress_nothing,
    only: Collection[str] | None = None,
    steps: StepLimit | None = None,
) -> FixResult:
    """Fix what the policy lets be fixed; `manifest` itself stays as it is.

    With `only`, nothing is changed but containers of these names. If a fix does not resolve its
    own finding, the fixes of its rule are disabled, the rule is named in the failures, and the
    work starts over. Raises only TooManyStepsError, if `steps` runs out.
    """
    steps = steps or StepLimit()
    if suppress is not suppress_nothing:
        suppress = _pin_suppressions(manifest, rule_set, context, suppress, steps)
    disabled_fixes: dict[str, RuleFailure] = {}
    while True:
        evaluation = Evaluation(manifest, rule_set, context, suppress, steps)
        if not evaluation.rules:
            return FixResult(manifest, [], [], evaluation.result)
        attempt = _FixAttempt(evaluation, manifest, only)
        unresolved = attempt.run(disabled_fixes)
        if not unresolved:
            remaining = attempt.result
            failures = (*disabled_fixes.values(), *attempt.failures, *remaining.failures)
            remaining.failures = list({failure.rule: failure for failure in failures}.values())
            return FixResult(attempt.manifest, attempt.operations, attempt.fixed, remaining)
        disabled_fixes.update(unresolved)


def _pin_suppressions(
    manifest: Json, rule_set: RuleSet, context: Context, suppress: Suppress, steps: StepLimit
) -> Suppress:
    """`suppress` with its answers for `manifest`: fixes move the paths that it knows."""
    answers: dict[str, set[bool]] = {}

    def record(finding: Finding, active: ActiveRule) -> bool:
        answer = suppress(finding, active)
        answers.setdefault(finding.identity, set()).add(answer)
        return answer

    def recall(finding: Finding, active: ActiveRule) -> bool:
        known = answers.get(finding.identity, set())
        return next(iter(known)) if len(known) == 1 else suppress(finding, active)

    check(manifest, rule_set, context, record, steps)
    return recall


class _FixAttempt:
    """One attempt to fix a manifest, rule by rule."""

    def __init__(
        self, evaluation: Evaluation, manifest: Json, only: Collection[str] | None
    ) -> None:
        self.manifest = manifest
        self.operations: list[Operation] = []
        self.fixed: list[Finding] = []
        self.failures: list[RuleFailure] = []
        self._not_selected: dict[str, list[Finding]] = {}
        self._only = only
        self._evaluation = evaluation

    @property
    def result(self) -> EvaluationResult:
        """What the rules say about the manifest as it is now."""
        return self._evaluation.result

    def run(self, disabled_fixes: dict[str, RuleFailure]) -> dict[str, RuleFailure]:
        """Fix until nothing more can be fixed; the rules whose fixes do not hold, and why.

        One fix may make possible that of a rule which ran earlier, so rules run in passes. A
        rule whose edits do not fit the manifest is added to `disabled_fixes`.
        """
        for _ in range(MAX_PASSES):
            before = len(self.fixed)
            self._run_pass(disabled_fixes)
            if len(self.fixed) == before:
                return self._unresolved()
            self._restart()
        reason = "its fixes come to no end"
        return {f.rule: RuleFailure(f.rule, reason) for f in self.fixed[before:]}

    def _run_pass(self, disabled_fixes: dict[str, RuleFailure]) -> None:
        fixed_before, fixed_identities = tuple(self.fixed), set[str]()
        waiting = list(self._evaluation.rules)[::-1]
        while waiting:
            number, active = waiting.pop()
            name = active.rule.name
            findings = self._evaluation.run_rule(active)
            if not findings or name in disabled_fixes:
                continue
            selected = [finding for finding in findings if self._is_selected(finding)]
            if selected and fixed_before:
                fixed_identities = fixed_identities or {f.identity for f in fixed_before}
                selected = [f for f in selected if f.identity not in fixed_identities]
            if not selected:
                continue
            edits = [edit for finding in selected if finding.fix for edit in finding.fix.edits]
            try:
                self.manifest, operations = apply(self.manifest, edits)
            except EditError as error:
                disabled_fixes[name] = RuleFailure(name, f"EditError: {error}")
                continue
            self.operations += operations
            self.fixed += selected
            self._not_selected[name] = [f for f in findings if not self._is_selected(f)]
            waiting = self._restart(name, after=number)

    def _restart(self, edited_by: str = "", after: int = -1) -> list[tuple[int, ActiveRule]]:
        """Go on with the manifest as the rule `edited_by`, of number `after`, has fixed it.

        Returns the rules after that number, the next one last. Rules up to it run again only if
        they supersede others.
        """
        self.failures += self.result.failures
        self._evaluation.restart(self.manifest, edited_by)
        rules = self._evaluation.rules
        for number, active in rules:
            if number <= after and active.rule.supersedes:
                self._evaluation.run_rule(active)
        return [rule for rule in reversed(rules) if rule[0] > after]

    def _unresolved(self) -> dict[str, RuleFailure]:
        """The rules that report a finding again although their fix was made."""
        if not self.fixed or not self.result.findings:
            return {}
        fixed_identities = {finding.identity for finding in self.fixed}
        known = chain(*self._not_selected.values())
        return {
            finding.rule: RuleFailure(finding.rule, f"the fix does not resolve {finding.identity}")
            for finding in introduced(self.result.findings, known)
            if finding.identity in fixed_identities
        }

    def _is_selected(self, finding: Finding) -> bool:
        return finding.fixable and (self._only is None or finding.container_name in self._only)
