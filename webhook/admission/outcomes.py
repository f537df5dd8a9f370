"""The outcome of each rule for one object, in a word: for log, metrics and audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rules.engine.result import EvaluationResult
from rules.finding import Action, Finding

_ENFORCED = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "audited"}
_NOT_DENIED = {**_ENFORCED, Action.DENY: "would-be-denied"}

POD_OUTCOMES: Mapping[Action, Mapping[Action, str]] = {
    Action.DENY: _ENFORCED,
    Action.WARN: _NOT_DENIED,
    Action.AUDIT: {**_NOT_DENIED, Action.WARN: "would-be-warned"},
}
"""By mode and by a finding's action, the outcome for a pod, a quota, a LimitRange or a claim."""
WORKLOAD_OUTCOMES: Mapping[Action, Mapping[Action, str]] = {
    Action.DENY: {**_ENFORCED, Action.DENY: "warned"},
    Action.WARN: {**_ENFORCED, Action.DENY: "warned"},
    Action.AUDIT: {**_ENFORCED, Action.DENY: "would-be-warned", Action.WARN: "would-be-warned"},
}
"""The same for a workload that is not refused."""
API_REFUSED = dict.fromkeys(Action, "api-refused")
"""By a finding's action, the outcome for what the API server itself refuses next."""

FIXED, WOULD_BE_FIXED = "fixed", "would-be-fixed"
EXCEPTED, NOT_EVALUATED = "excepted", "not-evaluated"
FIX_OUTCOMES = (FIXED, WOULD_BE_FIXED)
RULE_OUTCOMES = frozenset(
    {
        *(FIXED, WOULD_BE_FIXED, EXCEPTED, NOT_EVALUATED, "api-refused"),
        *("denied", "would-be-denied", "warned", "would-be-warned", "audited"),
    }
)


def rule_outcomes(
    findings: Iterable[Finding],
    outcome_by_action: Mapping[Action, str],
    fixed: Iterable[Finding] = (),
    excepted: Iterable[str] = (),
    *,
    patched: bool = False,
) -> dict[str, str]:
    """Each rule that found something, with the strongest outcome of its findings.

    `excepted` are names of rules; `patched` says whether the fixes are made or only would be.
    """
    strongest: dict[str, Action] = {}
    for finding in findings:
        strongest[finding.rule] = max(finding.action, strongest.get(finding.rule, Action.OFF))
    fix_outcome = FIXED if patched else WOULD_BE_FIXED
    return {
        **dict.fromkeys(excepted, EXCEPTED),
        **{rule: outcome_by_action[action] for rule, action in strongest.items()},
        **{finding.rule: fix_outcome for finding in fixed},
    }


def workload_outcomes(
    mode: Action,
    remaining: EvaluationResult,
    denied: Iterable[Finding],
    fixed: Iterable[Finding],
    *,
    patched: bool,
) -> dict[str, str]:
    """The same for a workload; `denied` are findings for which it is or would be refused."""
    by_rule = rule_outcomes(
        remaining.findings, WORKLOAD_OUTCOMES[mode], fixed, remaining.excepted, patched=patched
    )
    return by_rule | {finding.rule: POD_OUTCOMES[mode][Action.DENY] for finding in denied}


def api_refused(findings: Iterable[Finding]) -> list[Finding]:
    """Those for which the API server refuses the object before any validating webhook runs."""
    return [finding for finding in findings if finding.api_refuses]
