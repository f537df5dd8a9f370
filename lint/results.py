"""What a run of the linter found, ready to be reported in any format."""

from __future__ import annotations

from typing import Any, NamedTuple

from lint.manifests import File, Span
from rules.base.json_patch import pointer
from rules.finding import Action, Finding
from rules.rule import Rule

LEVELS = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}
ACTIONS = {level: action for action, level in LEVELS.items()}


class Located(NamedTuple):
    """A finding with its place in a file."""

    finding: Finding
    rule: Rule[Any]
    file: File
    span: Span

    @property
    def level(self) -> str:
        """error, warning or note."""
        return LEVELS[self.finding.action]

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the offending field, or of where a missing one belongs."""
        return pointer(self.finding.path)


class Remark(NamedTuple):
    """Something to say about a file, or about the run, that no rule says."""

    level: str
    file: str
    line: int
    column: int
    message: str


class PassedOver(NamedTuple):
    """A file that is left out on purpose, although a user may have expected it to be judged."""

    file: str
    why: str


class Unjudged(NamedTuple):
    """Input that could not be judged: unreadable, unparsable, or a rule of ours that failed."""

    file: str
    line: int
    column: int
    message: str


class Results:
    """One run."""

    def __init__(self) -> None:
        self.findings: list[Located] = []
        self.remarks: list[Remark] = []
        self.passed_over: list[PassedOver] = []
        self.unjudged: list[Unjudged] = []
        self.files = 0
        self.objects = 0
        self.pods = 0
        self.components = 0
        self.policy = ""
        self.suppressed = 0
        self.excepted = 0
        self.seconds = 0.0

    def count(self, level: str) -> int:
        """How many findings and remarks there are of `level`."""
        levels = [located.level for located in self.findings]
        return levels.count(level) + sum(1 for remark in self.remarks if remark.level == level)

    @property
    def fixable(self) -> int:
        """How many findings a fix would mend under this policy."""
        return sum(1 for located in self.findings if located.finding.fixable)

    def status(self, fail_on: str) -> int:
        """3 if something was not judged, 1 if a finding reaches `fail_on`, else 0."""
        if self.unjudged:
            return 3
        worst = [located.finding.action for located in self.findings]
        worst += [ACTIONS[remark.level] for remark in self.remarks]
        return int(any(action >= ACTIONS[fail_on] for action in worst))
