"""What comes of evaluating the rules about one manifest."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rules.finding import Finding
from rules.policy import PolicyException
from rules.workloads.subjects import MalformedField


class RuleFailure(NamedTuple):
    """A rule that raised, or whose edits did not fit: a bug of gpuward."""

    rule: str
    error: str


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
