"""The decision that refuses an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rules.engine.result import EvaluationResult, RuleFailure
from rules.finding import Action, Finding
from webhook.admission.decision import NO_TEXTS, Decision
from webhook.admission.messages import causes, denial, limit_warnings, warning


def refuse(
    result: EvaluationResult,
    denied: Sequence[Finding],
    by_rule: Mapping[str, str],
    failures: Sequence[RuleFailure] = (),
    verbs: Mapping[str, str] = NO_TEXTS,
) -> Decision:
    """Refuse an object because of the findings `denied`, and of `failures`.

    Further findings of `result` are warnings, if their action asks for one. `verbs` says, by the
    identity of a finding, what would happen to the object.
    """
    reasons = {finding.identity for finding in denied}
    warned = (
        finding
        for finding in result.findings
        if finding.action >= Action.WARN and finding.identity not in reasons
    )
    return Decision(
        "denied",
        allowed=False,
        message=denial(denied, failures, verbs),
        causes=causes(denied),
        warnings=limit_warnings(warning(finding) for finding in warned),
        annotations=by_rule,
        rule_outcomes=by_rule,
        findings=result.findings,
        failures=result.failures,
    )
