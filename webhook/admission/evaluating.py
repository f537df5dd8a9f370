"""Evaluate the object of a request by the rules, within the bounds on what is evaluated."""

from __future__ import annotations

from collections.abc import Callable

from rules.engine.bounds import MAX_STEPS, StepLimit, TooManyStepsError
from rules.engine.fixing import check, fix
from rules.engine.result import EvaluationResult, introduced
from rules.engine.rule_set import RuleSet
from rules.finding import Action
from webhook.admission.decision import CLEAN, Decision
from webhook.admission.not_evaluated import not_evaluated, too_large
from webhook.admission.request import AdmissionRequest, fixable_containers


def decide_within_bounds(
    decide: Callable[[AdmissionRequest], Decision],
    request: AdmissionRequest,
    steps: StepLimit | None,
) -> Decision:
    """What `decide` answers; that the object is not evaluated, if it exceeds a bound.

    TooManyStepsError if `steps` is given and runs out.
    """
    reason = too_large(request)
    if not reason:
        try:
            return decide(request._replace(steps=steps or StepLimit()))
        except TooManyStepsError:
            if steps is not None:
                raise
            reason = f"its size: the rules take more than {MAX_STEPS:,} steps"
    # A pod that exists already may be labelled, however large it is.
    if request.is_pod and request.is_unchanged:
        return CLEAN
    return not_evaluated(request.review, request.mode, reason)


def evaluate(request: AdmissionRequest, rules: RuleSet) -> EvaluationResult:
    """What the rules say about the object, or about what an update changes in it."""
    context, steps = request.context, request.steps
    if request.mode is not Action.DENY and request.is_pod:
        # In mode deny the fixes would be made first, so what they remove is not reported.
        only = fixable_containers(request)
        result = fix(request.object, rules, context, only=only, steps=steps).remaining
    else:
        result = check(request.object, rules, context, steps=steps)
    if request.old is not None and result.findings:
        before = check(request.old, rules, context, steps=steps)
        result.findings = introduced(result.findings, before.findings)
    return result
