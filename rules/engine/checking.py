"""Run one rule for one subject, within the bound on steps and whatever the rule raises."""

from __future__ import annotations

from collections.abc import Mapping

from rules.engine.bounds import StepLimit, TooManyStepsError, steps_of_finding
from rules.engine.result import RuleFindings
from rules.engine.rule_set import ActiveRule
from rules.finding import Finding
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.subjects import Subject

NOTHING: RuleFindings = ((), "")
"""No finding and no error of a rule."""


class ResultsByRule(dict[str, RuleFindings]):
    """What rules have said about a subject, and what they said in an `earlier` evaluation.

    What they said earlier takes as many steps as it took then, so that an object which takes too
    many does so whether or not it was evaluated before.
    """

    def __init__(self, earlier: Mapping[str, RuleFindings]) -> None:
        super().__init__()
        self.earlier = earlier


def check_subject(
    active: ActiveRule, subject: Subject, context: Context, limit: StepLimit, steps: int
) -> RuleFindings:
    """The findings of the rule about `subject`, and its error if it raised one.

    `context` has no options yet. `steps` are those of a rule that finds nothing; they are taken
    from `limit`, and each finding takes more.
    """
    rule = active.rule
    if not isinstance(subject, rule.subject):
        return NOTHING
    if rule.needs_resources and isinstance(subject, Pod) and subject.layout.gpu_field:
        return NOTHING
    limit.take(steps)
    results = subject.results_by_rule
    earlier = results.earlier.get(rule.name) if isinstance(results, ResultsByRule) else None
    if earlier is not None:
        limit.take(sum(map(steps_of_finding, earlier[0])))
        return earlier
    findings: list[Finding] = []
    if active.options:
        context = context.with_profile(context.profile, active.options)
    try:
        for finding in rule.check(subject, context):
            limit.take(steps_of_finding(finding))
            action = min(finding.action, active.action)
            is_partial = isinstance(subject, Pod) and subject.is_partial
            fixable = finding.has_fix(active.scope, is_partial=is_partial)
            findings.append(finding.with_rule(rule.name, subject, action, fixable=fixable))
    except (TooManyStepsError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  # the one place where bugs of rules are caught
        return findings, f"{type(error).__name__}: {error}"
    return (findings, "") if findings else NOTHING
