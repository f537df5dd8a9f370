"""Objects that are too large to be judged while others wait.

Rules take time in proportion to what they look at. An object made to keep the webhook busy
would let others slip past it, wherever an answer that comes too late counts as consent.
"""

from __future__ import annotations

from typing import Any

from rules.rule import Action
from webhook.answer import Answer
from webhook.call import Call
from webhook.verdicts import UNJUDGED

TOO_LARGE = "too-large"
# Bytes of a review below which nothing is counted: far more than real pods have.
LARGE_REVIEW = 256 << 10
# Bytes of a review of a workload; its pods are judged when they are made.
LARGEST_WORKLOAD = 1 << 20
# Values in a pod, those of `env` apart: a pod of fifty containers has about 3,000.
MOST_VALUES = 20_000

_UNCOUNTED = frozenset({"env", "managedFields"})


def too_large(call: Call) -> str:
    """Why the object cannot be judged; empty if it can."""
    if call.review.size <= LARGE_REVIEW:
        return ""
    if not call.is_pod:
        return "its size" if call.review.size > LARGEST_WORKLOAD else ""
    if not _exceeds(call.object, MOST_VALUES):
        return ""
    return f"its more than {MOST_VALUES:,} values beside the variables of its containers"


def unjudged(call: Call, why: str, *, refused: bool = False) -> Answer:
    """The answer about what is too large: a pod could hide anything in it."""
    line = f"gpuward [{TOO_LARGE}] cannot judge this object for {why}"
    if refused and call.mode is Action.DENY:
        noted = {TOO_LARGE: "denied"}
        return Answer("denied", allowed=False, message=line, annotations=noted, verdicts=noted)
    spoken = [] if call.mode is Action.AUDIT else [line]
    noted = {TOO_LARGE: UNJUDGED}
    return Answer("unjudged", warnings=spoken, annotations=noted, verdicts=noted)


def _exceeds(root: Any, most: int) -> bool:
    waiting = [root]
    seen = 0
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(value for key, value in node.items() if key not in _UNCOUNTED)
            seen += len(node)
        elif isinstance(node, list):
            waiting.extend(node)
            seen += len(node)
        if seen > most:
            return True
    return False
