"""The results of a run of the linter, for all report formats."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.findings import ACTION_BY_LEVEL, LocatedFinding, ReportedFinding, SuppressedFinding
from sources.sources import SkippedSource

MAX_FINDINGS = 100_000
"""More are not reported, so that the memory of a run has a bound: each takes about 3 kB."""
_TOO_MANY_MESSAGE = (
    "more findings than {:,} in this run: from here on none is reported; lint fewer files at once, "
    "or accept what is known with a baseline"
)
_SKIPPED_SUFFIX = "; the report names what was skipped"
_IGNORED = "; what Git ignores was left out, and --no-gitignore lints it"


class Remark(NamedTuple):
    """A message about a file or about the run that comes from no rule."""

    level: str
    file: str
    line: int
    column: int
    message: str
    is_always_shown: bool = False
    """whether texts have it without `--notes` although it is a note"""

    def is_visible(self, *, notes: bool) -> bool:
        """Return whether a text has the remark, which has all `notes` or not."""
        return notes or self.is_always_shown or self.level != "note"


class InputNotEvaluated(NamedTuple):
    """Input that could not be evaluated: unreadable, not parsable, or a rule failed on it."""

    file: str
    line: int
    column: int
    message: str


class PodsWithoutGpu(NamedTuple):
    """Pods on the GPU nodes of a cluster that ask for no GPU, as objects of JSON.

    `file` is the context if there are several clusters. `stranded` is what would not be stranded
    without these pods, by resource.
    """

    file: str
    pods: Sequence[Mapping[str, Any]]
    stranded: Mapping[str, Any]


class FixedFinding(NamedTuple):
    """A finding whose fix has been written into its file."""

    file: str
    finding: ReportedFinding


class UnfixedDocument(NamedTuple):
    """A document whose fixes cannot be written, and how to make them by hand."""

    file: str
    line: int
    column: int
    rules: tuple[str, ...]
    reason: str
    edits_by_hand: tuple[str, ...]


class Results:
    """The results of one run."""

    def __init__(self) -> None:
        self.findings: list[LocatedFinding] = []
        self.remarks: list[Remark] = []
        self.skipped: list[SkippedSource] = []
        self.not_evaluated: list[InputNotEvaluated] = []
        self.fixed: list[FixedFinding] = []
        self.not_fixed: list[UnfixedDocument] = []
        self.not_written: list[InputNotEvaluated] = []
        self.pods_without_gpu: list[PodsWithoutGpu] = []
        self.file_names: list[str] = []
        self.renderings = 0
        self.container_files = 0
        self.objects = 0
        self.pods = 0
        self.components = 0
        self.other_objects = 0
        self.gpu_exceptions = 0
        self.policy = ""
        self.suppressed = 0
        self.baselined = 0
        self.suppressed_findings: list[SuppressedFinding] = []
        self.excepted = 0
        self.started = datetime.datetime.now(tz=datetime.UTC)
        """when the run began; all reports of it say the same"""
        self.seconds = 0.0
        self.has_ignored = False
        """whether Git ignores something in the folders"""

    def add(self, later: "Results") -> None:
        """Add the results of inputs that come after those of these results.

        The name of the policy, the start and the duration are those of the whole run, and stay.
        """
        self.findings += later.findings
        self.remarks += later.remarks
        self.skipped += later.skipped
        self.not_evaluated += later.not_evaluated
        self.fixed += later.fixed
        self.not_fixed += later.not_fixed
        self.not_written += later.not_written
        self.pods_without_gpu += later.pods_without_gpu
        self.file_names += later.file_names
        self.suppressed_findings += later.suppressed_findings
        self.renderings += later.renderings
        self.container_files += later.container_files
        self.objects += later.objects
        self.pods += later.pods
        self.components += later.components
        self.other_objects += later.other_objects
        self.gpu_exceptions += later.gpu_exceptions
        self.suppressed += later.suppressed
        self.baselined += later.baselined
        self.excepted += later.excepted
        self.has_ignored = self.has_ignored or later.has_ignored
        self.leave_out_further_findings()

    def leave_out_further_findings(self) -> None:
        """Drop findings beyond MAX_FINDINGS, and report so as input that was not evaluated."""
        if len(self.findings) <= MAX_FINDINGS:
            return
        first = self.findings[MAX_FINDINGS]
        del self.findings[MAX_FINDINGS:]
        why = _TOO_MANY_MESSAGE.format(MAX_FINDINGS)
        if not any(item.message == why for item in self.not_evaluated):
            span = first.span
            self.not_evaluated.append(InputNotEvaluated(first.file, span.line, span.column, why))

    @property
    def file_count(self) -> int:
        """Return how many files were read."""
        return len(self.file_names)

    @property
    def is_of_files(self) -> bool:
        """Return whether what was evaluated is in files or standard input, and not in a cluster."""
        return bool(self.file_count) or not self.objects

    def count(self, level: str) -> int:
        """Return how many findings and remarks there are of `level`."""
        levels = [located.level for located in self.findings]
        return levels.count(level) + sum(1 for remark in self.remarks if remark.level == level)

    @property
    def fixable_count(self) -> int:
        """Return how many findings can be fixed under this policy."""
        return sum(1 for located in self.findings if located.finding.fixable)

    @property
    def skipped_text(self) -> str:
        """Return in words how many inputs were skipped, and how many `--render` evaluates."""
        names = {skipped.name for skipped in self.skipped}
        rendered = {skipped.name for skipped in self.skipped if skipped.needs_rendering}
        if not rendered:
            return f"{len(names)} skipped"
        which = "them" if rendered == names else f"{len(rendered)} of them"
        which = "it" if len(names) == 1 else which
        return f"{len(names)} skipped (--render evaluates {which})"

    @property
    def needs_rendering(self) -> bool:
        """Return whether something was skipped that `--render` evaluates."""
        return any(skipped.needs_rendering for skipped in self.skipped)

    @property
    def reason_nothing_evaluated(self) -> str:
        """Return why there was nothing to evaluate.

        The text is empty if there was something, readable or not.
        """
        evaluated = self.pods or self.other_objects or self.gpu_exceptions
        if evaluated or self.container_files or self.not_evaluated:
            return ""
        found = "no Kubernetes object"
        if self.objects:
            found = f"{self.objects} Kubernetes object{'s'[self.objects == 1 :]}, "
            found += "none of which rules are about"
        ignored = _IGNORED if self.has_ignored else ""
        return f"nothing to evaluate: {found}{_SKIPPED_SUFFIX if self.skipped else ''}{ignored}"

    def exit_status(self, fail_on: str) -> int:
        """3 if something was not evaluated or written, 1 if a finding reaches `fail_on`, else 0."""
        if self.not_evaluated or self.not_written:
            return 3
        worst = [located.finding.action for located in self.findings]
        worst += [ACTION_BY_LEVEL[remark.level] for remark in self.remarks]
        return int(any(action >= ACTION_BY_LEVEL[fail_on] for action in worst))
