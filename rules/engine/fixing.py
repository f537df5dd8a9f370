"""Check a manifest by the rules of a policy, and fix it.

`check` reports on the manifest as given. `fix` runs the rules in order, each on the manifest as
the fixes of the rules before it left it, and returns a JSON Patch. A rule that raises is a bug of
gpuward: the result names it, and it never decides about a user's object.
"""

from collections.abc import Collection
from typing import NamedTuple

from rules.base.json_values import Json, Operation
from rules.engine.bounds import StepLimit
from rules.engine.evaluation import Evaluation
from rules.engine.fix_attempt import FixAttempt
from rules.engine.result import EvaluationResult, RuleFailure
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.engine.suppression import Suppress, suppress_nothing
from rules.finding import Finding
from rules.profile.context import Context


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
    """What is wrong with `manifest`, which stays as it is.

    `suppress` decides which findings are suppressed: the linter's comments. `checked` is what
    `check` has returned for the same manifest, rules and context, whatever was suppressed: rules
    do not run again. Raises only TooManyStepsError, if `steps` runs out; a rule that fails is in
    `failures` of the result.
    """
    evaluation = Evaluation(manifest, rule_set, context, suppress, steps or StepLimit())
    if checked is not None:
        evaluation.remember(checked.by_subject)
    for _, active in evaluation.rules:
        evaluation.run_rule(active)
    evaluation.result.by_subject = evaluation.by_subject
    return evaluation.result


def fix(
    manifest: Json,
    rule_set: RuleSet,
    context: Context,
    suppress: Suppress = suppress_nothing,
    only: Collection[str] | None = None,
    steps: StepLimit | None = None,
    checked: EvaluationResult | None = None,
) -> FixResult:
    """Fix what the policy lets be fixed; `manifest` itself stays as it is.

    With `only`, nothing is changed but containers of these names. `checked` is as of `check`. If a
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
            evaluation.remember(checked.by_subject)
        if not evaluation.rules:
            return FixResult(manifest, [], [], evaluation.result)
        attempt = FixAttempt(evaluation, manifest, only)
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
