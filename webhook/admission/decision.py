"""The decision about one object, before it is encoded as an AdmissionReview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.base.json_values import Operation
from rules.engine.result import RuleFailure
from rules.finding import Finding

Outcome = Literal[
    "denied", "fixed", "not-evaluated", "warned", "audited", "excepted", "clean", "ignored"
]
"""What came of a request; the first ones are what a user notices most."""

NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class Reason(NamedTuple):
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
    reasons: Sequence[Reason] = ()


IGNORED = Decision("ignored")
CLEAN = Decision("clean")
