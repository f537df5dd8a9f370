"""Decisions about objects that gpuward did not evaluate, or not completely.

A pod or a claim for devices is refused in mode deny, because anything may be hidden in it.
Everything else is admitted with a warning.
"""

from __future__ import annotations

from rules.engine.bounds import oversized_reason
from rules.finding import Action
from webhook.admission.decision import Decision, Reason
from webhook.admission.outcomes import NOT_EVALUATED
from webhook.admission.request import AdmissionRequest
from webhook.admission.review import AdmissionReview

TOO_LARGE, TIMEOUT = "too-large", "timeout"
"""In place of a rule's name, why an object was not evaluated."""
# Operations of a patch; each takes the API server longer than gpuward.
MAX_OPERATIONS = 1_000


def too_large(request: AdmissionRequest) -> str:
    """Why the objects of the request are too large to be evaluated; empty if they are not."""
    size = request.review.size
    return oversized_reason(request.object, size) or oversized_reason(request.old, size)


def not_evaluated(
    review: AdmissionReview, mode: Action, reason: str, *, because: str = TOO_LARGE
) -> Decision:
    """The decision about an object that is not evaluated, `because` of a bound or of time."""
    line = f"gpuward [{because}] cannot evaluate this object because of {reason}"
    reasons = (Reason(because, NOT_EVALUATED),)
    if (review.is_pod or review.is_claim) and mode is Action.DENY:
        by_rule = {because: "denied"}
        return Decision(
            "denied",
            allowed=False,
            message=line,
            annotations=by_rule,
            rule_outcomes=by_rule,
            reasons=reasons,
        )
    warnings = [] if mode is Action.AUDIT else [line]
    by_rule = {because: NOT_EVALUATED}
    return Decision(
        "not-evaluated",
        warnings=warnings,
        annotations=by_rule,
        rule_outcomes=by_rule,
        reasons=reasons,
    )
