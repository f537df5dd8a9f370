"""Comments that suppress a rule: `# gpuward: ignore[rule-name] the reason`.

A comment covers the outermost node that begins on its line or, if it is on a line of its own, on
the next line: on the line of a field that field, on the first line of a container that container,
on the first line of a document the whole object. The comment must name a rule and give a reason.
Comments that suppress nothing are reported.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator

from kubeyaml import Document, Place
from policies.problems import suggestion_suffix
from rules.base.json_values import Path
from rules.engine.rule_set import ActiveRule
from rules.finding import Finding
from sources.manifests import File

_COMMENT_PATTERN = (
    r"(?:^|(?<=\s))#[ \t]*gpuward:[ \t]*ignore\b[ \t]*(?:\[([^\]\n]*)\])?[ \t]*([^\n]*)"
)
_COMMENT_WORD = "gpuward:"
_NO_OBJECT_MESSAGE = (
    "this comment suppresses nothing, because it is outside of every object or in a text: write it "
    "below the `---` of the object, on the line of the field or on the line above"
)


class Suppression:
    """One comment: its offset, the path that it covers, and the rules that it names."""

    def __init__(self, start: int, covers: Path, rules: tuple[str, ...], reason: str) -> None:
        self.start = start
        self.covers = covers
        self.rules = rules
        self.reason = reason
        self.used: set[str] = set()
        self.suppressed: dict[tuple[str, Path], Finding] = {}
        self.refused: set[str] = set()


class Suppressions:
    """The comments of one document."""

    def __init__(self, comments: list[Suppression]) -> None:
        self.comments = comments
        self._covering: dict[tuple[str, Path], Suppression] = {}
        self._left: dict[str, list[Path]] = {}  # what each rule finds, and no comment covers
        for comment in comments:
            for rule in comment.rules if comment.reason else ():
                self._covering.setdefault((rule, comment.covers), comment)

    def suppresses(self, finding: Finding, active: ActiveRule) -> bool:
        """Return whether a comment covers `finding`; the engine asks this of each one."""
        comment = self.comment_covering(finding.path, active)
        if comment is None:
            if self.comments:
                self._left.setdefault(finding.rule, []).append(finding.path)
            return False
        comment.used.add(finding.rule)
        comment.suppressed.setdefault((finding.identity, finding.path), finding)
        return True

    def comment_covering(self, path: Path, active: ActiveRule) -> Suppression | None:
        """The comment that suppresses what the rule finds at `path`; None if none may."""
        rule = active.rule.name
        for depth in range(len(path) + 1) if self._covering else ():
            comment = self._covering.get((rule, path[:depth]))
            if comment and active.suppressible:
                return comment
            if comment:
                comment.refused.add(rule)
        return None

    def suppressed_findings(self) -> Iterator[tuple[Finding, str]]:
        """Each finding that a comment has suppressed, and the comment's reason."""
        for comment in self.comments:
            for finding in comment.suppressed.values():
                yield finding, comment.reason

    def comment_faults(
        self, known: frozenset[str], line_of: Callable[[Path], int] | None = None
    ) -> Iterator[tuple[Suppression, str]]:
        """Yield the comments with faults, and the faults, once all findings have been asked about.

        `line_of` returns the line of a finding, where a comment would suppress it.
        """
        for comment in self.comments:
            if not comment.rules or not comment.reason:
                yield comment, "write it as: gpuward: ignore[rule-name] the reason"
                continue
            for rule in comment.rules:
                if rule not in known:
                    yield comment, f"there is no rule {rule!r}{suggestion_suffix(rule, known)}"
                elif rule in comment.refused:
                    yield comment, f"the policy does not allow a comment to suppress {rule}"
                elif rule not in comment.used and rule in self._left and line_of:
                    lines = sorted(set(map(line_of, self._left[rule])))
                    where = f"but {some_lines(lines)}: write the comment there or on the line above"
                    yield comment, f"{rule} finds nothing here, {where}"
                elif rule not in comment.used:
                    yield comment, f"{rule} finds nothing here: remove it from the comment"


_MAX_LINES = 5


def some_lines(lines: list[int]) -> str:
    """The first few of `lines` in words, at least one, and how many more there are."""
    first = ", ".join(map(str, lines[:_MAX_LINES]))
    more = f" and {len(lines) - _MAX_LINES} more" if len(lines) > _MAX_LINES else ""
    return f"on line {first}" if len(lines) == 1 else f"on the lines {first}{more}"


def comments_in_no_object(file: File, handled: Collection[int]) -> Iterator[tuple[int, str]]:
    """The comments that are in no object, or in a text of one: the offset, and what to do.

    They are on lines of their own. The comments in the lines `handled` are in objects.
    """
    text = file.source.text
    if _COMMENT_WORD not in text:
        return
    for match in re.finditer(rf"(?m)^[ \t]*{_COMMENT_PATTERN}", text):
        if file.position(match.start())[0] not in handled:
            yield text.index("#", match.start()), _NO_OBJECT_MESSAGE


def find_suppressions(file: File, document: Document, end: int) -> Suppressions:
    """The comments in `document`, which ends before the offset `end`."""
    text = file.source.text
    if text.find(_COMMENT_WORD, document.start, end) < 0:
        return Suppressions([])
    outline = _DocumentOutline(file, document)
    found = []
    for match in re.compile(_COMMENT_PATTERN).finditer(text, document.start, end):
        if not outline.is_inside_text(match.start()):
            rules = tuple(name.strip() for name in (match[1] or "").split(",") if name.strip())
            covers = outline.path_covered_by(match.start())
            found.append(Suppression(match.start(), covers, rules, match[2].strip()))
    return Suppressions(found)


def comments_in_text(file: File, without: Iterable[range] = ()) -> Suppressions:
    """The comments of a file that is no YAML: each covers its line, or the next one with text.

    The paths that they cover are the numbers of lines, from 1. The lines `without` have comments
    for others.
    """
    text = file.source.text
    left_out = {line for lines in without for line in lines}
    found = []
    for match in re.finditer(_COMMENT_PATTERN, text):
        line = file.position(match.start())[0]
        if line in left_out:
            continue
        if not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip():
            line += 1
        rules = tuple(name.strip() for name in (match[1] or "").split(",") if name.strip())
        found.append(Suppression(match.start(), (line,), rules, match[2].strip()))
    return Suppressions(found)


class _DocumentOutline:
    """On which lines the nodes of a document begin, and where its keys and scalars are."""

    def __init__(self, file: File, document: Document) -> None:
        self._file = file
        self._beginnings: dict[int, Path] = {}
        texts = set()
        for path, place in _places_with_paths(document.place):
            start = place.key_start if place.key_start >= 0 else place.start
            self._beginnings.setdefault(file.position(start)[0], path)
            texts.add((place.key_start, place.key_end))
            if place.inside is None:
                texts.add((place.start, place.end))
        self._lines = sorted(self._beginnings)
        self._texts = sorted(texts)

    def is_inside_text(self, offset: int) -> bool:
        """Return whether `offset` is in a key or a scalar, whose text may look like a comment."""
        index = bisect_right(self._texts, (offset, offset)) - 1
        return any(start <= offset < end for start, end in self._texts[max(index, 0) : index + 2])

    def path_covered_by(self, comment: int) -> Path:
        """The path of the outermost node that begins on the comment's line, or on the next one."""
        text, line = self._file.source.text, self._file.position(comment)[0]
        if not text[text.rfind("\n", 0, comment) + 1 : comment].strip():
            following = bisect_right(self._lines, line)
            return self._first_on(following) if following < len(self._lines) else ("no such path",)
        # If no node begins there, as beside a closing bracket: the last one that began before.
        index = bisect_right(self._lines, line) - 1
        return self._first_on(index) if index >= 0 else ()

    def _first_on(self, line_index: int) -> Path:
        return self._beginnings[self._lines[line_index]]


def _places_with_paths(place: Place) -> Iterator[tuple[Path, Place]]:
    """Every node's place with its path, parents first."""
    waiting: list[tuple[Path, Place]] = [((), place)]
    for path, current in waiting:
        yield path, current
        inside = current.inside
        if isinstance(inside, dict):
            waiting.extend(((*path, key), child) for key, child in inside.items())
        elif isinstance(inside, list):
            waiting.extend(((*path, index), child) for index, child in enumerate(inside))
