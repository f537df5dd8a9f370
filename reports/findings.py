"""Findings as reports show them: with their places in files, and without their manifests."""

from typing import Any, NamedTuple

from kubeyaml import Document
from rules.all_rules import ALL_RULES
from rules.base.json_values import Path, pointer
from rules.finding import Action, Finding, identity_of, object_identity_of
from rules.objects.object_ref import ObjectRef
from rules.rule import Rule
from sources.manifests import Excerpt, File, Span, span_alone

RULE_BY_NAME = {rule.name: rule for rule in ALL_RULES}
LEVEL_BY_ACTION = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}
ACTION_BY_LEVEL = {level: action for action, level in LEVEL_BY_ACTION.items()}


class ReportedFinding(NamedTuple):
    """The content of a `rules.finding.Finding` that reports show.

    A finding itself shows its container, and so keeps its whole manifest in memory. `container` is
    the container with its kind, `fix` the title of the fix; both may be empty.
    """

    rule: str
    action: Action
    path: Path
    key: str
    message: str
    help: str
    object: ObjectRef | None
    stable_path: str
    container_name: str
    container: str
    fix: str
    fixable: bool

    @property
    def identity(self) -> str:
        """Return a text that stays the same when lines move and containers are reordered."""
        place = (self.stable_path, self.container_name, self.key)
        return identity_of(self.rule, self.object, *place)

    @property
    def object_identity(self) -> str:
        """Kind, group, namespace and name of the object."""
        return object_identity_of(self.object)

    @property
    def remedy(self) -> str:
        """Return what removes the finding: `fix`, `unsafe-fix`, or a person `by-hand`."""
        if self.fixable:
            return "fix"
        return "unsafe-fix" if self.fix else "by-hand"


def to_reported_finding(finding: Finding) -> ReportedFinding:
    """`finding` without its manifest."""
    return ReportedFinding(
        rule=finding.rule,
        action=finding.action,
        path=finding.path,
        key=finding.key,
        message=finding.message,
        help=finding.help,
        object=finding.object,
        stable_path=finding.stable_path,
        container_name=finding.container_name,
        container=str(finding.container) if finding.container else "",
        fix=finding.fix.title if finding.fix else "",
        fixable=finding.fixable,
    )


class SuggestedEdit(NamedTuple):
    """Put `text` in the place of what is between two positions; lines and columns count from 1.

    `byte` and `end_byte` are the columns in bytes of UTF-8.
    """

    line: int
    column: int
    byte: int
    end_line: int
    end_column: int
    end_byte: int
    text: str


class LocatedFinding(NamedTuple):
    """A finding with its position in a file, and the text there.

    `owner` is the object at the end of the chain of `ownerReferences`, such as the Deployment of a
    running pod, or the object itself; `objects` is how many objects of this owner have the fault.
    `rendered_by` is the command that renders the object, if no file has it, and `rendered_line`
    its line there; file and span are then what the field is rendered from.
    `edits` fix this finding alone; they are looked for only if a report wants them.
    """

    finding: ReportedFinding
    file: str
    span: Span
    excerpt: Excerpt
    owner: ObjectRef | None = None
    object_count: int = 1
    rendered_by: str = ""
    rendered_line: int = 0
    edits: tuple[SuggestedEdit, ...] = ()

    @property
    def rule(self) -> Rule[Any]:
        """The rule that makes the finding."""
        return RULE_BY_NAME[self.finding.rule]

    @property
    def level(self) -> str:
        """error, warning or note."""
        return LEVEL_BY_ACTION[self.finding.action]

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the offending field, or of where a missing one belongs."""
        return pointer(self.finding.path)

    @property
    def pointer_in_object(self) -> str:
        """The JSON Pointer of the field within its object, which may be one of a List."""
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


def locate_finding(file: File, document: Document, finding: Finding) -> LocatedFinding:
    """`finding` about `document` with its place in `file`."""
    span = file.span_of_path(document, finding.path)
    shown, part, path = to_reported_finding(finding), file.source.part, finding.path
    if part and path[:1] == ("items",) and isinstance(path[1], int):
        shown = shown._replace(path=("items", path[1] + part.item_offset, *path[2:]))
    if file.source.is_embedded:
        shown = shown._replace(fix="", fixable=False)
    excerpt = file.excerpt(span)
    if is_about_secret(finding):
        excerpt = without_values(excerpt, finding)
    elif file.has_secret:
        excerpt = span_alone(excerpt)
    return LocatedFinding(shown, file.source.name, span, excerpt, finding.object)


def is_about_secret(finding: Finding) -> bool:
    """Return whether the object of `finding` has values that no report may show."""
    return finding.object is not None and finding.object.kind == "Secret"


def without_values(excerpt: Excerpt, finding: Finding) -> Excerpt:
    """Return `excerpt` with the key alone: the lines of a Secret may have any of its values."""
    text = f"{finding.path[-1]}: …"
    return excerpt._replace(text=text, start=len(text) - 1, width=1, before=(), after=())
