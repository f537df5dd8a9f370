"""What is answered to the API server, before it is put into its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.base.json_patch import Operation
from rules.engine.result import RuleFailure
from rules.finding import Finding

# What came of a call, in falling order of what the user notices.
Outcome = Literal[
    "denied", "fixed", "unjudged", "warned", "audited", "excepted", "clean", "ignored"
]

NOTHING: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    """The decision about one object.

    `message` and `causes` speak only if the object is refused. `operations` are the JSON
    Patch, empty if nothing is to be changed. `annotations` go into the API server's audit
    log. `verdicts` are for our own log and metrics: what came of each rule, in a word.
    `find_value` remains in the object, `fixed` was or would be mended, `failures` are faults of
    our own.
    """

    outcome: Outcome
    allowed: bool = True
    message: str = ""
    causes: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    operations: Sequence[Operation] = ()
    annotations: Mapping[str, str] = NOTHING
    verdicts: Mapping[str, str] = NOTHING
    found: Sequence[Finding] = ()
    fixed: Sequence[Finding] = ()
    failures: Sequence[RuleFailure] = ()


IGNORED = Answer("ignored")
CLEAN = Answer("clean")
