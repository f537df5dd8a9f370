"""Objects that are too large to be judged while others wait.

Rules take time in proportion to what they look at. An object made to keep the webhook busy
would let others slip past it, wherever an answer that comes too late counts as consent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rules.finding import Action
from rules.objects.object_ref import BUILT_IN_GROUPS
from webhook.answer import Answer
from webhook.call import Call
from webhook.verdicts import UNJUDGED

TOO_LARGE = "too-large"
# Bytes of a review below which nothing is counted: more than nearly all have.
LARGE_REVIEW = 64 << 10
# Values in an object, those of `env` apart: a pod of fifty containers has about 3,000.
MOST_VALUES = 10_000
# Operations of a patch: the API server takes longer for each than we do.
MOST_OPERATIONS = 1_000

# Fields of built-in kinds that cost little to look at. `status` of a new object is forgotten
# after the mutating call, so it must weigh nothing there.
_LIGHT = frozenset({"env", "managedFields", "status"})
# Nobody looks for pods in these fields of a custom resource; anything else may mean anything.
_PASSED_OVER = frozenset({"metadata", "status"})


def too_large(call: Call) -> str:
    """Why the object cannot be judged; empty if it can."""
    if call.review.size <= LARGE_REVIEW:
        return ""
    root, light = call.object, _LIGHT
    if call.review.group not in BUILT_IN_GROUPS:
        root = {key: value for key, value in root.items() if key not in _PASSED_OVER}
        light = frozenset()
    if not _exceeds(root, MOST_VALUES, light):
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


def _exceeds(root: Any, most: int, light: Collection[str]) -> bool:
    waiting = [root]
    seen = 0
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(value for key, value in node.items() if key not in light)
            seen += len(node)
        elif isinstance(node, list):
            waiting.extend(node)
            seen += len(node)
        if seen > most:
            return True
    return False
