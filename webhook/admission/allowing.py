"""Decisions that refuse nothing: with or without a patch, and with warnings as the mode allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rules.base.json_patch import Operation
from rules.engine.result import EvaluationResult
from rules.finding import Action, Finding
from webhook.admission.decision import CLEAN, NO_TEXTS, Decision, Outcome
from webhook.admission.messages import failure_warning, fix_warnings, limit_warnings, warning
from webhook.admission.request import AdmissionRequest


def allow(
    request: AdmissionRequest,
    result: EvaluationResult,
    findings: Sequence[Finding],
    by_rule: Mapping[str, str],
    fixed: Sequence[Finding] = (),
    operations: Sequence[Operation] = (),
    verbs: Mapping[str, str] = NO_TEXTS,
) -> Decision:
    """A decision that refuses nothing and warns as far as the mode allows."""
    if not (by_rule or result.failures):
        return CLEAN
    lines: list[str] = []
    if request.mode is not Action.AUDIT:
        reported = [finding for finding in findings if finding.action >= Action.WARN]
        lines += [warning(f, verbs.get(f.identity) or _verb(request, f)) for f in reported]
        lines += fix_warnings(fixed, "fixed" if operations else "would be fixed")
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


def _verb(request: AdmissionRequest, finding: Finding) -> str:
    """What mode deny would do to the object, unless the API server refuses it by itself."""
    spared = request.mode is not Action.DENY and finding.action is Action.DENY
    ours = request.is_validated and not finding.api_refuses
    return "would be refused: " if ours and spared else ""
