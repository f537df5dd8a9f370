"""The results of a run of the linter, for all report formats."""

from __future__ import annotations

from typing import Any, NamedTuple

from lint.manifests import File, Span
from rules.base.json_patch import pointer
from rules.finding import Action, Finding
from rules.objects.object_ref import ObjectRef
from rules.rule import Rule

LEVELS = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}
_SKIPPED = "; the report names what was skipped"
ACTIONS = {level: action for action, level in LEVELS.items()}


class LocatedFinding(NamedTuple):
    """A finding with its position in a file.

    `owner` is the object at the end of the chain of `ownerReferences`, such as the Deployment of a
    running pod, or the object itself; `objects` is how many objects of this owner have the fault.
    `rendered_by` is the command that renders the object, if no file has it, and `rendered_line`
    its line there; file and span are then what the field is rendered from.
    """

    finding: Finding
    rule: Rule[Any]
    file: File
    span: Span
    owner: ObjectRef | None = None
    objects: int = 1
    rendered_by: str = ""
    rendered_line: int = 0

    @property
    def level(self) -> str:
        """error, warning or note."""
        return LEVELS[self.finding.action]

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the offending field, or of where a missing one belongs."""
        return pointer(self.finding.path)

    @property
    def pointer_in_object(self) -> str:
        """The same within the object, if that is one of a List."""
        path = self.finding.path
        while len(path) > 1 and path[0] == "items" and isinstance(path[1], int):
            path = path[2:]
        return pointer(path)


class SuppressedFinding(NamedTuple):
    """A finding that a comment or an entry of a baseline suppresses, and the reason it gives.

    `kind` is SARIF's word for where that is: `inSource` or `external`.
    """

    located: LocatedFinding
    reason: str
    kind: str = "inSource"


class Remark(NamedTuple):
    """A message about a file or about the run that comes from no rule."""

    level: str
    file: str
    line: int
    column: int
    message: str


class SkippedFile(NamedTuple):
    """A file that is not evaluated on purpose, although a user may expect it to be."""

    file: str
    why: str


class InputNotEvaluated(NamedTuple):
    """Input that could not be evaluated: unreadable, not parsable, or a rule failed on it."""

    file: str
    line: int
    column: int
    message: str


class FixedFinding(NamedTuple):
    """A finding whose fix has been written into its file."""

    file: str
    finding: Finding


class NotFixed(NamedTuple):
    """A document whose fixes cannot be written, and how to make them by hand."""

    file: str
    line: int
    column: int
    rules: tuple[str, ...]
    reason: str
    by_hand: tuple[str, ...]


class Results:
    """The results of one run."""

    def __init__(self) -> None:
        self.findings: list[LocatedFinding] = []
        self.remarks: list[Remark] = []
        self.skipped: list[SkippedFile] = []
        self.not_evaluated: list[InputNotEvaluated] = []
        self.fixed: list[FixedFinding] = []
        self.not_fixed: list[NotFixed] = []
        self.not_written: list[InputNotEvaluated] = []
        self.file_names: list[str] = []
        self.renderings = 0
        self.objects = 0
        self.pods = 0
        self.components = 0
        self.quotas_and_claims = 0
        self.gpu_exceptions = 0
        self.policy = ""
        self.suppressed = 0
        self.baselined = 0
        self.suppressed_findings: list[SuppressedFinding] = []
        self.excepted = 0
        self.seconds = 0.0

    @property
    def files(self) -> int:
        """How many files were read."""
        return len(self.file_names)

    def count(self, level: str) -> int:
        """How many findings and remarks there are of `level`."""
        levels = [located.level for located in self.findings]
        return levels.count(level) + sum(1 for remark in self.remarks if remark.level == level)

    @property
    def fixable(self) -> int:
        """How many findings can be fixed under this policy."""
        return sum(1 for located in self.findings if located.finding.fixable)

    @property
    def nothing_to_evaluate(self) -> str:
        """Why there was nothing to evaluate; empty if there was something, readable or not."""
        evaluated = self.pods or self.quotas_and_claims or self.gpu_exceptions
        if evaluated or self.not_evaluated:
            return ""
        found = "no Kubernetes object"
        if self.objects:
            found = f"{self.objects} Kubernetes object{'s'[self.objects == 1 :]}, "
            found += "none of which is or has a pod, a quota or a claim"
        return f"nothing to evaluate: {found}{_SKIPPED if self.skipped else ''}"

    def status(self, fail_on: str) -> int:
        """3 if something was not evaluated or written, 1 if a finding reaches `fail_on`, else 0."""
        if self.not_evaluated or self.not_written:
            return 3
        worst = [located.finding.action for located in self.findings]
        worst += [ACTIONS[remark.level] for remark in self.remarks]
        return int(any(action >= ACTIONS[fail_on] for action in worst))
