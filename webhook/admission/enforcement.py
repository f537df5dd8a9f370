"""Decisions that refuse nothing: with or without a patch, and with warnings as the mode allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rules.base.json_values import Operation
from rules.engine.result import EvaluationResult
from rules.finding import Action, Finding
from webhook.admission.decision import CLEAN, NO_TEXTS, Decision, Outcome
from webhook.admission.messages import failure_warning, fix_warnings, limit_warnings, warning
from webhook.admission.request import AdmissionRequest
from webhook.admission.second_apply import SECOND_APPLY, second_apply_fails

# Without these fixes a pod lacks nothing but a default, so nobody has to do anything about it.
DEFAULTS = frozenset({"affinity-default", "toleration-default"})
WOULD_BE_REFUSED = "would be refused in mode deny: "


def allow(
    request: AdmissionRequest,
    result: EvaluationResult,
    findings: Sequence[Finding],
    by_rule: Mapping[str, str],
    fixed: Sequence[Finding] = (),
    operations: Sequence[Operation] = (),
    verbs: Mapping[str, str] = NO_TEXTS,
    unmentioned: Collection[str] = (),
) -> Decision:
    """A decision that refuses nothing and warns as far as the mode allows.

    `verbs` says, by the identity of a finding, what would happen to the object. `unmentioned` are
    rules that cause no warning about what would be fixed.
    """
    if not (by_rule or result.failures):
        return CLEAN
    lines: list[str] = []
    if request.mode is not Action.AUDIT:
        reported = [finding for finding in findings if finding.action >= Action.WARN]
        lines += [warning(f, verbs.get(f.identity) or _verb(request, f)) for f in reported]
        lines += _fix_lines(request, fixed, operations, unmentioned)
        lines += [failure_warning(failure) for failure in result.failures]
    silent: Outcome = "audited" if fixed or findings or result.failures else "excepted"
    without_patch: Outcome = "warned" if lines else silent
    return Decision(
        "fixed" if operations else without_patch,
        warnings=limit_warnings(lines),
        operations=operations,
        annotations=by_rule,
        rule_outcomes=by_rule,
        findings=findings,
        fixed=fixed,
        failures=result.failures,
    )


def _fix_lines(
    request: AdmissionRequest,
    fixed: Sequence[Finding],
    operations: Sequence[Operation],
    unmentioned: Collection[str],
) -> list[str]:
    """What is fixed, or would be."""
    if not operations:
        mentioned = (finding for finding in fixed if finding.rule not in unmentioned)
        return fix_warnings(mentioned, "would be fixed")
    lines = fix_warnings(fixed, "fixed")
    if request.is_pod and second_apply_fails(request.object, operations):
        lines.append(SECOND_APPLY)
    return lines


def _verb(request: AdmissionRequest, finding: Finding) -> str:
    """What mode deny would do to the object, unless the API server refuses it by itself."""
    spared = request.mode is not Action.DENY and finding.action is Action.DENY
    ours = request.is_validated and not finding.api_refuses
    return WOULD_BE_REFUSED if ours and spared else ""
