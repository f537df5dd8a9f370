"""Decide whether a policy accepts GpuExceptions, by which owners of a namespace ask for exceptions.

The objects are not trusted: they come from tenants by way of the API server, and from users who may
write the file that the webhook reads. So nothing is assumed about them, and each is bounded.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from policies.exceptions import (
    RULE_BY_NAME,
    ExceptionEntry,
    exception_problems,
    to_exception,
    to_exception_entry,
)
from policies.policy import GpuExceptionLimits, Policy
from policies.problems import Problem, iter_schema_errors, schema_problems
from rules.base.json_values import as_object, as_text, pointer
from rules.engine.rule_set import PolicyException

APPROVAL_LABEL = "gpuward.io/approved"
"""It approves a GpuException whose `spec_hash` is its value. Only approvers may set it."""
MAX_COUNTED_IN_NAMESPACE = 20
MAX_ACCEPTED = 400
MAX_SPEC_CHARACTERS = 2_048
HINT_DAYS = 14
"""For so many days, refusals say that an exception has ended."""
_MAX_PROBLEMS = 3
_NAMESPACE_PATTERN = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class AcceptanceReason(enum.Enum):
    """The reason of the condition `Accepted`."""

    ACCEPTED = "Accepted"
    INVALID = "Invalid"
    TOO_LARGE = "TooLarge"
    TOO_MANY = "TooMany"
    NOT_ALLOWED = "NotAllowed"
    TOO_LONG = "TooLong"
    NOT_APPROVED = "NotApproved"
    ENDED = "Ended"


class Acceptance(NamedTuple):
    """The answer to a GpuException: whether it is accepted, and why.

    `exception` is there if it is accepted, or ended lately: then refusals name the day.
    """

    reason: AcceptanceReason
    message: str
    exception: PolicyException | None = None

    @property
    def is_accepted(self) -> bool:
        """Return whether the exception applies."""
        return self.reason is AcceptanceReason.ACCEPTED


def acceptances(
    objects: Iterable[Mapping[str, Any]], policy: Policy, today: datetime.date
) -> Iterator[tuple[Mapping[str, Any], Acceptance]]:
    """Each GpuException with its acceptance by `policy` on the day `today`, in the given order.

    Of each namespace the first `MAX_COUNTED_IN_NAMESPACE` count, of all the first `MAX_ACCEPTED`
    that are accepted or have ended lately.
    """
    in_namespace: Counter[str] = Counter()
    room = MAX_ACCEPTED
    for raw in objects:
        namespace = as_text(as_object(raw.get("metadata")).get("namespace"))
        in_namespace[namespace] += 1
        if in_namespace[namespace] > MAX_COUNTED_IN_NAMESPACE:
            message = (
                f"a namespace may have {MAX_COUNTED_IN_NAMESPACE} GpuExceptions, "
                "and the first by name count: delete those that have ended"
            )
            yield raw, Acceptance(AcceptanceReason.TOO_MANY, message)
            continue
        found = acceptance(raw, policy.gpu_exception_limits, today)
        if found.exception is not None:
            room -= 1
            if room < 0:
                message = f"the cluster has more than {MAX_ACCEPTED} accepted GpuExceptions"
                found = Acceptance(AcceptanceReason.TOO_MANY, message)
        yield raw, found


def acceptance(
    raw: Mapping[str, Any], limits: Iterable[GpuExceptionLimits], today: datetime.date
) -> Acceptance:
    """Return the answer to the GpuException `raw` on the day `today`, by `limits`.

    Other GpuExceptions do not count here.
    """
    if len(json.dumps(raw.get("spec"))) > MAX_SPEC_CHARACTERS:
        message = f"spec has more than {MAX_SPEC_CHARACTERS} characters as JSON"
        return Acceptance(AcceptanceReason.TOO_LARGE, message)
    problems = [
        f"{pointer(path)}: {text}"
        for path, text in islice(find_gpu_exception_problems(raw), _MAX_PROBLEMS)
    ]
    if problems:
        return Acceptance(AcceptanceReason.INVALID, "; ".join(problems))
    exception = to_exception(_to_exception_entry(raw))
    obstacle = _reason_to_refuse(raw, exception, tuple(limits), today)
    if exception.expires is None or not exception.has_expired(today):
        return obstacle or _accepted(exception)
    is_hint = obstacle is None and (today - exception.expires).days <= HINT_DAYS
    message = f"it ended after {exception.expires}"
    return Acceptance(AcceptanceReason.ENDED, message, exception if is_hint else None)


def _accepted(exception: PolicyException) -> Acceptance:
    message = f"findings of {', '.join(exception.rules)} are accepted until {exception.expires}"
    return Acceptance(AcceptanceReason.ACCEPTED, message, exception)


def _reason_to_refuse(
    raw: Mapping[str, Any],
    exception: PolicyException,
    limits: tuple[GpuExceptionLimits, ...],
    today: datetime.date,
) -> Acceptance | None:
    """Return why `exception` is not allowed; None if it is.

    One of `limits` must allow each of its rules. The same holds for the rules that one of these
    supersedes: they stay silent about what it found.
    """
    metadata = as_object(raw["metadata"])
    namespace, expires = exception.namespaces[0], exception.expires or datetime.date.max
    # A day of creation that lies ahead cannot be right, and would let the exception last longer.
    begin = min(_creation_day(metadata) or today, today)
    needs_approval = False
    superseded = {
        other: rule for rule in exception.rules for other in RULE_BY_NAME[rule].supersedes
    }
    for rule in (*exception.rules, *superseded):
        found = [one for one in limits if one.covers(rule, namespace)]
        if not found:
            message = f"the policy allows no GpuExceptions to {rule} in the namespace {namespace}"
            if rule not in exception.rules:
                message += f", and one to {superseded[rule]} would silence that rule too"
            return Acceptance(AcceptanceReason.NOT_ALLOWED, message)
        longest = max(one.max_days for one in found)
        fitting = [one for one in found if expires <= begin + datetime.timedelta(one.max_days)]
        if not fitting:
            last = begin + datetime.timedelta(longest)
            message = f"an exception to {rule} of {begin} may last {longest} days, until {last}"
            return Acceptance(AcceptanceReason.TOO_LONG, message)
        needs_approval |= all(one.needs_approval for one in fitting)
    approval, needed = as_object(metadata.get("labels")).get(APPROVAL_LABEL), spec_hash(raw)
    if not needs_approval or approval == needed:
        return None
    message = f"it needs the label {APPROVAL_LABEL}={needed}, which only approvers may set"
    if approval is not None:
        message = f"its label {APPROVAL_LABEL} does not approve this spec: {message}"
    return Acceptance(AcceptanceReason.NOT_APPROVED, message)


def spec_hash(raw: Mapping[str, Any]) -> str:
    """The hash of the spec of a GpuException, 40 characters: it names what a user approves.

    A spec that was changed after the user had read it has another one.
    """
    text = json.dumps(raw.get("spec"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:40]  # a label has at most 63 characters


def find_gpu_exception_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the GpuException `raw` by itself: paths, and messages for the user."""
    is_valid = True
    for error in iter_schema_errors(raw, gpu_exception_schema()):
        is_valid = False
        yield from schema_problems(error)
    metadata = as_object(raw.get("metadata"))
    # The namespace becomes a pattern, in which a star would match others.
    if not _NAMESPACE_PATTERN.fullmatch(as_text(metadata.get("namespace"))):
        yield ("metadata",), "namespace: this should be the name of a namespace"
        return
    if is_valid:
        for (_, *rest), text in exception_problems(_to_exception_entry(raw), ("spec",)):
            yield ("spec", *rest), text


def _to_exception_entry(raw: Mapping[str, Any]) -> ExceptionEntry:
    """Return the spec of a valid GpuException in the form of a policy's exceptions."""
    spec, namespace = raw["spec"], raw["metadata"]["namespace"]
    return to_exception_entry({**spec, "match": {**spec.get("match", {}), "namespace": namespace}})


def _creation_day(metadata: Mapping[str, Any]) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(as_text(metadata.get("creationTimestamp"))[:10])
    except ValueError:
        return None


@cache
def gpu_exception_schema() -> Mapping[str, Any]:
    """The schema of a GpuException, in the words that JSON Schema and Kubernetes share."""
    path = os.path.join(os.path.dirname(__file__), "gpu-exception.schema.json")
    with open(path, encoding="utf-8") as file:
        loaded: Mapping[str, Any] = json.load(file)
    return loaded
