"""The decision about one object, before it is encoded, and what log and metrics say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from policies.policy import SECURITY_FAMILIES
from rules.base.json_values import Operation, pointer
from rules.engine.evaluation import EvaluationResult, RuleFailure
from rules.finding import Action, Finding

Outcome = Literal[
    "denied", "fixed", "not-evaluated", "warned", "audited", "excepted", "clean", "ignored"
]
"""The outcome of a request; the first ones are what a user notices most."""

NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class DecisionReason(NamedTuple):
    """One reason for a decision, for the log.

    - `rule`: the rule, or the bound that was exceeded.
    - `family`: the class of the reason: the family of the rule, `rule-error` or `not-evaluated`.
    - `container`: its name, empty if the reason concerns the whole object.
    - `path`: the field as a JSON Pointer.
    """

    rule: str
    family: str
    container: str = ""
    path: str = ""


class Decision(NamedTuple):
    """The decision about one object.

    - `message`, `causes`: why the object is refused; empty if it is allowed.
    - `warnings`: what the API server shows to the user.
    - `operations`: the JSON Patch, empty if nothing is changed.
    - `annotations`: what goes into the API server's audit log.
    - `rule_outcomes`: the outcome of each rule that found something, for the log and metrics.
    - `findings`: those that remain in the object; `fixed`: those that are or would be fixed.
    - `failures`: bugs of gpuward.
    - `reasons`: the same without values of the object, for the log.
    """

    outcome: Outcome
    allowed: bool = True
    message: str = ""
    causes: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    operations: Sequence[Operation] = ()
    annotations: Mapping[str, str] = NO_TEXTS
    rule_outcomes: Mapping[str, str] = NO_TEXTS
    findings: Sequence[Finding] = ()
    fixed: Sequence[Finding] = ()
    failures: Sequence[RuleFailure] = ()
    reasons: Sequence[DecisionReason] = ()


IGNORED_DECISION = Decision("ignored")
CLEAN_DECISION = Decision("clean")


_OUTCOME_IF_ENFORCED = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "audited"}
_OUTCOME_IF_NOT_DENIED = {**_OUTCOME_IF_ENFORCED, Action.DENY: "would-be-denied"}

POD_OUTCOMES: Mapping[Action, Mapping[Action, str]] = {
    Action.DENY: _OUTCOME_IF_ENFORCED,
    Action.WARN: _OUTCOME_IF_NOT_DENIED,
    Action.AUDIT: {**_OUTCOME_IF_NOT_DENIED, Action.WARN: "would-be-warned"},
}
"""By mode and by a finding's action, the outcome for a pod, a quota, a LimitRange or a claim."""
WORKLOAD_OUTCOMES: Mapping[Action, Mapping[Action, str]] = {
    Action.DENY: {**_OUTCOME_IF_ENFORCED, Action.DENY: "warned"},
    Action.WARN: {**_OUTCOME_IF_ENFORCED, Action.DENY: "warned"},
    Action.AUDIT: {
        **_OUTCOME_IF_ENFORCED,
        Action.DENY: "would-be-warned",
        Action.WARN: "would-be-warned",
    },
}
"""The outcomes of a workload that is not refused."""
API_REFUSED = dict.fromkeys(Action, "api-refused")
"""By a finding's action, the outcome for what the API server itself refuses next."""

FIXED_OUTCOME, WOULD_BE_FIXED_OUTCOME = "fixed", "would-be-fixed"
EXCEPTED_OUTCOME, NOT_EVALUATED_OUTCOME = "excepted", "not-evaluated"
FIX_OUTCOMES = (FIXED_OUTCOME, WOULD_BE_FIXED_OUTCOME)
RULE_OUTCOMES = frozenset(
    {
        *(
            FIXED_OUTCOME,
            WOULD_BE_FIXED_OUTCOME,
            EXCEPTED_OUTCOME,
            NOT_EVALUATED_OUTCOME,
            "api-refused",
        ),
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
    fix_outcome = FIXED_OUTCOME if patched else WOULD_BE_FIXED_OUTCOME
    return {
        **dict.fromkeys(excepted, EXCEPTED_OUTCOME),
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
    """Return the outcomes of a workload's rules.

    `denied` are findings for which it is or would be refused.
    """
    by_rule = rule_outcomes(
        remaining.findings, WORKLOAD_OUTCOMES[mode], fixed, remaining.excepted, patched=patched
    )
    return by_rule | {finding.rule: POD_OUTCOMES[mode][Action.DENY] for finding in denied}


def api_refused_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Those for which the API server refuses the object before any validating webhook runs."""
    return [finding for finding in findings if finding.api_refuses]


def worst_first(findings: Iterable[Finding], families: Mapping[str, str]) -> list[Finding]:
    """`findings` in the order in which a refusal names them.

    What takes GPUs or rights that are not the pod's comes before mistakes that harm only itself.
    `families` has the family of each rule.
    """
    rank = {family: position for position, family in enumerate(SECURITY_FAMILIES)}
    last = len(rank)
    return sorted(findings, key=lambda finding: rank.get(families.get(finding.rule, ""), last))


# The reasons of a decision, for the log: only names, never values of an object.

MAX_REASONS = 20
MAX_PATH_CHARACTERS = 500  # characters
RULE_ERROR_FAMILY = "rule-error"
"""In place of a family, for a rule that failed."""


def reasons_of(decision: Decision, families: Mapping[str, str]) -> tuple[DecisionReason, ...]:
    """The findings and failures of `decision`, at most MAX_REASONS.

    `families` has the family of each rule.
    """
    found = [_reason(f, families) for f in (*decision.findings, *decision.fixed)[:MAX_REASONS]]
    failed = [DecisionReason(failure.rule, RULE_ERROR_FAMILY) for failure in decision.failures]
    return tuple(dict.fromkeys((*found, *failed)))[:MAX_REASONS]


def _reason(finding: Finding, families: Mapping[str, str]) -> DecisionReason:
    path = pointer(finding.path)
    if len(path) > MAX_PATH_CHARACTERS:
        path = path[: MAX_PATH_CHARACTERS - 1] + "…"
    return DecisionReason(
        finding.rule, families.get(finding.rule, ""), finding.container_name, path
    )
