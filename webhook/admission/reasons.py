"""Why a decision was made, in names alone: for the log, which never has values of an object."""

from __future__ import annotations

from collections.abc import Mapping

from rules.base.json_values import pointer
from rules.finding import Finding
from webhook.admission.decision import Decision, Reason

MAX_REASONS = 20
MAX_PATH_LENGTH = 500  # characters
RULE_ERROR = "rule-error"
"""In place of a family, for a rule that failed."""


def reasons(decision: Decision, families: Mapping[str, str]) -> tuple[Reason, ...]:
    """The findings and failures of `decision`, at most MAX_REASONS.

    `families` has the family of each rule.
    """
    found = [_reason(f, families) for f in (*decision.findings, *decision.fixed)[:MAX_REASONS]]
    failed = [Reason(failure.rule, RULE_ERROR) for failure in decision.failures]
    return tuple(dict.fromkeys((*found, *failed)))[:MAX_REASONS]


def _reason(finding: Finding, families: Mapping[str, str]) -> Reason:
    path = pointer(finding.path)
    if len(path) > MAX_PATH_LENGTH:
        path = path[: MAX_PATH_LENGTH - 1] + "…"
    return Reason(finding.rule, families.get(finding.rule, ""), finding.container_name, path)
