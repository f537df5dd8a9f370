"""Check a manifest by the rules of a policy, and fix it.

`check` reports on the manifest as given. `fix` runs the rules in order, each on the manifest as the
fixes of the rules before it left it, and returns a JSON Patch. A rule that raises is a bug of
gpuward: the result names it, and it never decides about a user's object.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from rules.base.json_values import EditError, Json, Operation, apply
from rules.engine.bounds import StepLimit
from rules.engine.evaluation import Evaluation, EvaluationResult, RuleFailure, introduced_findings
from rules.engine.exceptions import Suppress, suppress_nothing
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.finding import Action, Finding
from rules.profile.context import Context

# Far more passes than rules that build on each other need.
MAX_PASSES = 8


class FixAttempt:
    """One attempt to fix a manifest, rule by rule."""

    def __init__(
        self,
        evaluation: Evaluation,
        manifest: Json,
        only: Collection[str] | None,
        min_action: Action,
    ) -> None:
        self.manifest = manifest
        self.operations: list[Operation] = []
        self.fixed: list[Finding] = []
        self.failures: list[RuleFailure] = []
        self._not_selected: dict[str, list[Finding]] = {}
        self._skipped: list[ActiveRule] = []
        self._only = only
        self._min_action = min_action
        self._evaluation = evaluation

    @property
    def result(self) -> EvaluationResult:
        """Return the result of the rules for the manifest as it is now."""
        return self._evaluation.result

    def run(self, disabled_fixes: dict[str, RuleFailure]) -> dict[str, RuleFailure]:
        """Fix until nothing more can be fixed; the rules whose fixes do not hold, and why.

        One fix may make possible that of a rule which ran earlier, so rules run in passes. A
        rule whose edits do not fit the manifest is added to `disabled_fixes`.
        """
        for _ in range(MAX_PASSES):
            before = len(self.fixed)
            self._run_pass(disabled_fixes)
            if len(self.fixed) == before or self._is_settled():
                return self._unresolved()
            self._restart()
        reason = "its fixes come to no end"
        return {f.rule: RuleFailure(f.rule, reason) for f in self.fixed[before:]}

    def _run_pass(self, disabled_fixes: dict[str, RuleFailure]) -> None:
        fixed_before = frozenset(finding.identity for finding in self.fixed)
        waiting: Sequence[tuple[int, ActiveRule]] = self._evaluation.rules
        while waiting:
            waiting = self._run_to_next_fix(waiting, fixed_before, disabled_fixes)

    def _run_to_next_fix(
        self,
        waiting: Sequence[tuple[int, ActiveRule]],
        fixed_before: Collection[str],
        disabled_fixes: dict[str, RuleFailure],
    ) -> Sequence[tuple[int, ActiveRule]]:
        """Run rules until one fixes something; those that come after it."""
        for number, active in waiting:
            findings = self._evaluation.run_rule(active)
            if not findings or active.rule.name in disabled_fixes:
                continue
            selected = [finding for finding in findings if self._is_selected(finding)]
            if selected and fixed_before:
                selected = [f for f in selected if f.identity not in fixed_before]
            if not selected:
                continue
            name = active.rule.name
            edits = [edit for finding in selected if finding.fix for edit in finding.fix.edits]
            try:
                self.manifest, operations = apply(self.manifest, edits)
            except EditError as error:
                disabled_fixes[name] = RuleFailure(name, f"EditError: {error}")
                continue
            self.operations += operations
            self.fixed += selected
            self._not_selected[name] = [f for f in findings if not self._is_selected(f)]
            return self._restart(after=number)
        return ()

    def _restart(self, after: int = -1) -> Sequence[tuple[int, ActiveRule]]:
        """Go on with the manifest as the rule of number `after` has fixed it.

        Returns the rules after that number. Of those up to it, the ones that supersede others run
        again; the others have to be run before the result is complete.
        """
        self.failures += self.result.failures
        self._evaluation.restart(self.manifest)
        rules = self._evaluation.rules
        first = bisect_right(rules, after, key=itemgetter(0))
        self._skipped = []
        for _, active in rules[:first]:
            if active.rule.supersedes:
                self._evaluation.run_rule(active)
            else:
                self._skipped.append(active)
        return rules[first:]

    def _is_settled(self) -> bool:
        """Return whether the rules that the pass skipped after the last fix find nothing.

        Then there is nothing to fix, and the result is complete.
        """
        return not any(map(self._evaluation.run_rule, self._skipped))

    def _unresolved(self) -> dict[str, RuleFailure]:
        """The rules that report a finding again although their fix was made."""
        if not self.fixed or not self.result.findings:
            return {}
        fixed_identities = {finding.identity for finding in self.fixed}
        known = chain(*self._not_selected.values())
        return {
            finding.rule: RuleFailure(finding.rule, f"the fix does not resolve {finding.identity}")
            for finding in introduced_findings(self.result.findings, known)
            if finding.identity in fixed_identities
        }

    def _is_selected(self, finding: Finding) -> bool:
        is_wanted = finding.fixable and finding.action >= self._min_action
        return is_wanted and (self._only is None or finding.container_name in self._only)


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
    checked: EvaluationResult | None = None,
) -> EvaluationResult:
    """Return the findings in `manifest`, which stays as it is.

    `suppress` decides which findings are suppressed: the linter's comments. `checked` is what
    `check` has returned for the same manifest, rules and context, whatever was suppressed: rules
    do not run again. Raises only TooManyStepsError, if `steps` runs out; a rule that fails is in
    `failures` of the result.
    """
    evaluation = Evaluation(manifest, rule_set, context, suppress, steps or StepLimit())
    if checked is not None:
        evaluation.reuse_results(checked.results_by_subject)
    for _, active in evaluation.rules:
        evaluation.run_rule(active)
    evaluation.result.results_by_subject = evaluation.results_by_subject
    return evaluation.result


def fix(
    manifest: Json,
    rule_set: RuleSet,
    context: Context,
    suppress: Suppress = suppress_nothing,
    only: Collection[str] | None = None,
    steps: StepLimit | None = None,
    checked: EvaluationResult | None = None,
    min_action: Action = Action.AUDIT,
) -> FixResult:
    """Fix what the policy lets be fixed; `manifest` itself stays as it is.

    With `only`, nothing is changed but containers of these names. Findings with an action below
    `min_action` stay. `checked` is as of `check`. If a
    fix does not resolve its own finding, the fixes of its rule are disabled, the rule is named in
    the failures, and the work starts over. Raises only TooManyStepsError, if `steps` runs out.
    """
    steps = steps or StepLimit()
    if suppress is not suppress_nothing:
        suppress = _pin_suppressions(manifest, rule_set, context, suppress, steps, checked)
    disabled_fixes: dict[str, RuleFailure] = {}
    while True:
        evaluation = Evaluation(manifest, rule_set, context, suppress, steps)
        if checked is not None:
            evaluation.reuse_results(checked.results_by_subject)
        if not evaluation.rules:
            return FixResult(manifest, [], [], evaluation.result)
        attempt = FixAttempt(evaluation, manifest, only, min_action)
        unresolved = attempt.run(disabled_fixes)
        if not unresolved:
            remaining = attempt.result
            failures = (*disabled_fixes.values(), *attempt.failures, *remaining.failures)
            remaining.failures = list({failure.rule: failure for failure in failures}.values())
            return FixResult(attempt.manifest, attempt.operations, attempt.fixed, remaining)
        disabled_fixes.update(unresolved)


def _pin_suppressions(
    manifest: Json,
    rule_set: RuleSet,
    context: Context,
    suppress: Suppress,
    steps: StepLimit,
    checked: EvaluationResult | None,
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

    check(manifest, rule_set, context, record, steps, checked)
    return recall
