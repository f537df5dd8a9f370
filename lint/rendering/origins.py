"""The origins of findings in a rendering: each finding is moved to its origin."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from kubeyaml import CachedReader, Document
from lint.suppressions import Suppressions, find_suppressions
from reports.findings import LocatedFinding, SuppressedFinding
from reports.results import InputNotEvaluated, Remark, Results
from rules.base.json_values import Path
from rules.engine.rule_set import ActiveRule
from rules.finding import Action
from sources.manifests import File, Span
from sources.sources import MAX_BYTES, Source

_MAX_LINE_CHARACTERS = 2_000  # characters that are shown
_MAX_SHARED_CHARACTERS = (
    16 << 20
)  # characters; what is read of them takes some twenty times as many bytes


class Origin(NamedTuple):
    """A place in a file: the one that a finding is about, or one near it.

    `document` and `path` are the place in a manifest, whose comments the rendering does not have.
    They are only given if the manifest is certainly the one that was rendered.
    """

    file: File
    span: Span
    document: Document | None = None
    path: Path = ()


class WorkBudget:
    """The steps that may be spent on finding origins in a run; without any left, they are coarse.

    A step takes a few microseconds.
    """

    def __init__(self, steps: int = 3_000_000) -> None:
        self._left = steps

    def try_spend(self, steps: int) -> bool:
        """Take `steps`; whether there were as many."""
        self._left -= steps
        return self._left >= 0


class OriginFinder(Protocol):
    """Finds the origins of the findings in one rendering."""

    def find(self, located: LocatedFinding) -> Origin | None:
        """The origin of a finding in the rendering; None if no file can be named."""


class SourceFiles:
    """The files that renderings are from, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, File | None] = {}
        self.reader = CachedReader(_MAX_SHARED_CHARACTERS)
        """the reader of the documents of these files, and of the renderings"""

    def read(self, name: str) -> File | None:
        """The file called `name`; None if it cannot be read."""
        if name not in self._files:
            self._files[name] = _read(name, self.reader)
        return self._files[name]


def line_span(file: File, number: int) -> Span:
    """The text of the line `number`, from 1, without its indentation and list marker."""
    text, start = file.source.text, file.line_start(number)
    end = text.find("\n", start, start + _MAX_LINE_CHARACTERS)
    line = (
        text[start : end if end >= 0 else start + _MAX_LINE_CHARACTERS].partition(" #")[0].rstrip()
    )
    shown = line.lstrip().removeprefix("- ").lstrip()
    column = len(line) - len(shown)
    return Span(start + column, start + len(line), number, column + 1)


def _read(name: str, reader: CachedReader) -> File | None:
    try:
        if not os.path.isfile(name):
            return None
        with open(name, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return None
        return File(Source(name, content.decode(), reader=reader))
    except (OSError, UnicodeDecodeError):
        return None


RulesOfFolder: TypeAlias = Callable[[str], dict[str, ActiveRule]]
_WithPosition = TypeVar("_WithPosition", Remark, InputNotEvaluated)


class _Rendering(NamedTuple):
    """A rendering, and the finder of the origins of what is in it.

    `is_base`: it is a kustomization that is also rendered in others.
    """

    file: str
    finder: OriginFinder
    is_base: bool


class RenderingOrigins:
    """The way back from the renderings of a run, by the commands that wrote them."""

    def __init__(self) -> None:
        self.files = SourceFiles()
        self.work = WorkBudget()
        self._renderings: dict[str, _Rendering] = {}
        self._comments: dict[tuple[str, int], Suppressions] = {}

    def add(self, command: str, file: str, finder: OriginFinder, *, is_base: bool = False) -> None:
        """Remember that `command` renders `file`, which may be a base that others include."""
        self._renderings[command] = _Rendering(file, finder, is_base)

    def move_findings(self, results: Results, rules: RulesOfFolder) -> None:
        """Give everything that was found in renderings the places that it is from.

        The same fault of the same object in several renderings stays once, at its highest level.
        What a comment at its origin suppresses becomes a suppressed finding; `rules` says which
        act in a folder. Of what only a base has, errors stay, as warnings.
        """
        of_bases = self._take_from_bases(results)
        found: dict[object, LocatedFinding] = {}
        suppressed: dict[object, SuppressedFinding] = {}
        for number, located in enumerate(results.findings):
            if located.file not in self._renderings:
                found[number] = located
                continue
            origin = self._origin(located)
            moved, place = _moved_to_origin(located, origin), _key_of_place(located, origin)
            known = found.get(place)
            if reason := self._reason(located, origin, rules):
                suppressed[place] = SuppressedFinding(moved, reason)
            elif known is None or located.finding.action > known.finding.action:
                found[place] = moved
        for number, entry in enumerate(results.suppressed_findings):
            if entry.located.file not in self._renderings:
                suppressed[number] = entry
                continue
            origin = self._origin(entry.located)
            place = _key_of_place(entry.located, origin)
            suppressed[place] = entry._replace(located=_moved_to_origin(entry.located, origin))
        faults = {_key_of_fault(located) for located in found.values()}
        faults |= {_key_of_fault(entry.located) for entry in suppressed.values()}
        for located in of_bases:
            origin = self._origin(located)
            moved, place = _moved_to_origin(located, origin), _key_of_place(located, origin)
            if _key_of_fault(moved) in faults:
                continue
            if reason := self._reason(located, origin, rules):
                suppressed[place] = SuppressedFinding(moved, reason)
            else:
                found[place] = self._as_warning(moved)
        results.findings = list(found.values())
        results.suppressed_findings = list(suppressed.values())
        results.suppressed = len(suppressed)
        results.remarks = self._without_lines(results.remarks)
        results.not_evaluated = self._without_lines(results.not_evaluated)

    def _take_from_bases(self, results: Results) -> list[LocatedFinding]:
        """The errors in the renderings of bases; nothing else of these stays in `results`."""
        bases = {name for name, rendering in self._renderings.items() if rendering.is_base}
        errors = [
            one
            for one in results.findings
            if one.file in bases and one.finding.action is Action.DENY
        ]
        results.findings = [one for one in results.findings if one.file not in bases]
        results.remarks = [one for one in results.remarks if one.file not in bases]
        results.not_evaluated = [one for one in results.not_evaluated if one.file not in bases]
        return errors

    def _as_warning(self, located: LocatedFinding) -> LocatedFinding:
        """A finding that only a base has: kustomizations that include the base change the field."""
        folder = os.path.dirname(self._renderings[located.rendered_by].file) or "."
        message = f"{located.finding.message} (only where {folder} is applied by itself: every "
        message += "kustomization here that includes it changes this)"
        finding = located.finding._replace(message=message, action=Action.WARN)
        return located._replace(finding=finding)

    def _origin(self, located: LocatedFinding) -> Origin:
        rendering = self._renderings[located.file]
        origin = rendering.finder.find(located)
        if origin is not None:
            return origin
        file = self.files.read(rendering.file) or File(Source(located.file, ""))
        return Origin(file, line_span(file, 1))

    def _reason(self, located: LocatedFinding, origin: Origin, rules: RulesOfFolder) -> str:
        """The reason of the comment in the origin that suppresses a finding; empty if none does."""
        folder = os.path.dirname(self._renderings[located.file].file) or "."
        active = rules(folder).get(located.finding.rule)
        document = origin.document
        if active is None or document is None:
            return ""
        key = (origin.file.source.name, document.start)
        if key not in self._comments:
            self._comments[key] = find_suppressions(origin.file, document, document.end)
        comment = self._comments[key].comment_covering(origin.path, active)
        return comment.reason if comment else ""

    def _without_lines(self, entries: list[_WithPosition]) -> list[_WithPosition]:
        """The entries, each once, with what was rendered as their file."""
        moved: dict[_WithPosition, None] = {}
        for entry in entries:
            rendering = self._renderings.get(entry.file)
            if rendering:
                message = f"{entry.message} (line {entry.line} of `{entry.file}`)"
                entry = entry._replace(file=rendering.file, line=0, column=0, message=message)  # noqa: PLW2901
            moved[entry] = None
        return list(moved)


def _moved_to_origin(located: LocatedFinding, origin: Origin) -> LocatedFinding:
    """The finding at its origin; `gpuward fix` writes no file that has to be rendered."""
    return located._replace(
        finding=located.finding._replace(fix="", fixable=False),
        file=origin.file.source.name,
        span=origin.span,
        excerpt=origin.file.excerpt(origin.span),
        rendered_by=located.file,
        rendered_line=located.span.line,
    )


def _key_of_fault(located: LocatedFinding) -> object:
    """Return a key by which a fault is recognised in all objects rendered from one place."""
    return located.finding.rule, located.file, located.span


def _key_of_place(located: LocatedFinding, origin: Origin) -> object:
    """Return a key by which a finding is recognised in other renderings of the same object."""
    return located.finding.identity, origin.file.source.name, origin.span
