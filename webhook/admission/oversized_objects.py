"""Refuse objects that are too large to be evaluated while other requests wait.

The time that rules take grows with the object. A tenant could use an oversized object to occupy
the webhook, so that other requests time out and pass where the failurePolicy is Ignore.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rules.finding import Action
from rules.objects.object_ref import BUILT_IN_GROUPS
from webhook.admission.decision import Decision
from webhook.admission.outcomes import NOT_EVALUATED
from webhook.admission.request import AdmissionRequest

TOO_LARGE = "too-large"
# Nothing is counted in reviews below this size, which nearly all are.
LARGE_REVIEW_BYTES = 64 << 10
# Values in an object, those in `env` not counted; a pod of fifty containers has about 3,000.
MAX_VALUES = 10_000
# Operations of a patch; each takes the API server longer than gpuward.
MAX_OPERATIONS = 1_000

# Fields of built-in kinds that take little time. The API server drops the `status` of a new object
# after the mutating webhook, so it must not count.
_UNCOUNTED_FIELDS = frozenset({"env", "managedFields", "status"})
# The search for pods skips these fields of a custom resource; all others may hold pods.
_FIELDS_WITHOUT_PODS = frozenset({"metadata", "status"})


def too_large(request: AdmissionRequest) -> str:
    """Why the object is too large to be evaluated; empty if it is not."""
    if request.review.size <= LARGE_REVIEW_BYTES:
        return ""
    root, uncounted = request.object, _UNCOUNTED_FIELDS
    if request.review.group not in BUILT_IN_GROUPS:
        root = {key: value for key, value in root.items() if key not in _FIELDS_WITHOUT_PODS}
        uncounted = frozenset()
    if not _exceeds(root, MAX_VALUES, uncounted):
        return ""
    return f"its more than {MAX_VALUES:,} values beside the variables of its containers"


def not_evaluated(request: AdmissionRequest, reason: str, *, refused: bool = False) -> Decision:
    """The decision about an object that is too large.

    A pod (`refused`) is denied in mode deny, because anything may be hidden in it.
    """
    line = f"gpuward [{TOO_LARGE}] cannot evaluate this object because of {reason}"
    if refused and request.mode is Action.DENY:
        by_rule = {TOO_LARGE: "denied"}
        return Decision(
            "denied", allowed=False, message=line, annotations=by_rule, rule_outcomes=by_rule
        )
    warnings = [] if request.mode is Action.AUDIT else [line]
    by_rule = {TOO_LARGE: NOT_EVALUATED}
    return Decision("not-evaluated", warnings=warnings, annotations=by_rule, rule_outcomes=by_rule)


def _exceeds(root: Any, limit: int, uncounted: Collection[str]) -> bool:
    waiting = [root]
    count = 0
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(value for key, value in node.items() if key not in uncounted)
            count += len(node)
        elif isinstance(node, list):
            waiting.extend(node)
            count += len(node)
        if count > limit:
            return True
    return False
