"""What a review is about, and what of it is ours to judge or to change."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from rules.finding import Action
from rules.profile.context import Context
from webhook.review import Review

OPERATIONS = ("CREATE", "UPDATE")
EPHEMERAL = "ephemeralContainers"


class Call(NamedTuple):
    """A review with what else the decision needs; `old` is None unless something is updated."""

    review: Review
    object: Any
    old: Any
    context: Context
    mode: Action

    @property
    def is_pod(self) -> bool:
        """Whether a pod itself is made or changed."""
        return self.review.kind == "Pod" and not self.review.group

    @property
    def is_quota(self) -> bool:
        """Whether it is a quota."""
        return self.review.kind == "ResourceQuota" and not self.review.group

    @property
    def is_as_before(self) -> bool:
        """Whether an update leaves all of a pod as it was by which it could take a GPU."""
        if self.old is None or self.object.get("spec") != self.old.get("spec"):
            return False
        new, old = _metadata(self.object), _metadata(self.old)
        return bool(new.get("annotations") == old.get("annotations"))


def call_of(review: Review, mode: Action, today: datetime.date) -> Call | None:
    """What is to be decided; None if it is none of our business."""
    raw = review.object
    if mode is Action.OFF or review.operation not in OPERATIONS or not isinstance(raw, dict):
        return None
    created = review.operation == "CREATE"
    # In a new object anybody could write that it is being deleted; the API server forgets it.
    if not created and _metadata(review.old).get("deletionTimestamp"):
        return None
    context = Context(today, review.namespace, review.user, "CREATE" if created else "UPDATE")
    old = None if created else _typed(as_object(review.old), review)
    call = Call(review, _typed(raw, review), old, context, mode)
    if call.is_pod or call.is_quota:
        return call
    owners = as_objects(_metadata(raw).get("ownerReferences"))
    if any(owner.get("controller") is True for _, owner in owners):
        return None  # its owner has been spoken of
    # Whoever applies a component's workload is not the one who will make its pods.
    return call._replace(context=context._replace(user=None))


def _metadata(raw: Any) -> Mapping[str, Any]:
    return as_object(as_object(raw).get("metadata"))


def _typed(raw: Mapping[str, Any], review: Review) -> Mapping[str, Any]:
    """`raw` with its kind, which the rules look for, should the caller have left it out."""
    if raw.get("kind") and raw.get("apiVersion"):
        return raw
    version = f"{review.group}/v1" if review.group else "v1"
    return {**raw, "apiVersion": version, "kind": review.kind}


def mendable(call: Call) -> frozenset[str] | None:
    """The containers that may be changed; None for all of a new pod."""
    if call.review.operation == "CREATE":
        return None
    if call.review.resource != "pods/ephemeralcontainers":
        return frozenset()
    return _ephemeral(call.object) - _ephemeral(call.old)


def _ephemeral(pod: Mapping[str, Any]) -> frozenset[str]:
    listed = as_objects(as_object(pod.get("spec")).get(EPHEMERAL))
    return frozenset(as_text(container.get("name")) for _, container in listed)
