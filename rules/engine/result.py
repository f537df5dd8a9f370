"""What comes of evaluating the rules about one manifest."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rules.finding import Finding
from rules.policy_exception import PolicyException
from rules.workloads.subjects import MalformedField


class RuleFailure(NamedTuple):
    """A rule that raised, or whose edits did not fit: a bug of gpuward."""

    rule: str
    error: str


RuleFindings: TypeAlias = tuple[Sequence[Finding], str]
"""What a rule has said about a subject, and its error if it raised one."""


class EvaluationResult:
    """What the rules say about one manifest.

    - `findings`: those that nothing suppresses, excepts or supersedes.
    - `malformed_fields`: fields of the wrong type; rules read them as empty.
    - `failures`: bugs of gpuward.
    - `excepted`: the rule of each finding that an exception of the policy accepts.
    - `suppressed`: how many findings were suppressed.
    - `pods`: how many pods the manifest holds; `components`: how many of them are components of
      the GPU platform, which no rule is run for.
    - `other_objects`: how many objects it holds that are no pods, and that rules are about.
    - `by_subject`: what each rule has said about each subject, before exceptions and the like.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.malformed_fields: list[MalformedField] = []
        self.failures: list[RuleFailure] = []
        self.excepted: list[str] = []
        self.suppressed = 0
        self.pods = 0
        self.components = 0
        self.other_objects = 0
        self.used_exceptions: set[PolicyException] = set()
        self.by_subject: Sequence[Mapping[str, RuleFindings]] = ()


def introduced(new: Iterable[Finding], old: Iterable[Finding]) -> list[Finding]:
    """The findings of `new` that `old` does not have, as multisets of identity and message."""
    known = Counter((finding.identity, finding.message) for finding in old)
    added = []
    for finding in new:
        mark = (finding.identity, finding.message)
        if known[mark]:
            known[mark] -= 1
        else:
            added.append(finding)
    return added
