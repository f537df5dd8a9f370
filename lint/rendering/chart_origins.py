"""The origins of the objects of a rendered chart: lines of templates and values files."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lint.rendering.origins import Origin, SourceFiles, WorkBudget, line_span
from reports.findings import LocatedFinding
from sources.manifests import File
from sources.rendering.charts import RenderedChart

# Find the line of a template, or of a values file, that a line of its rendering comes from.
#
# Templates are no YAML, so this compares texts: the line itself, in which `{{ … }}` may stand for
# anything, and then the lines in which it is nested. Every comparison is linear.

_MAX_LINES = 50_000
_MIN_LITERAL_CHARACTERS = 2


class OutlineLine(NamedTuple):
    """A line that may be part of YAML, without indentation, list marker, quotes and comment.

    `pieces` are its texts between placeholders; `parent` is the index of the line in which it is
    nested, -1 for none.
    """

    number: int
    text: str
    pieces: tuple[str, ...]
    parent: int

    def can_render_as(self, rendered: str) -> bool:
        """Return whether this line can be rendered as `rendered`."""
        first, last = self.pieces[0], self.pieces[-1]
        if len(self.pieces) == 1:
            return first == rendered
        start, end = len(first), len(rendered) - len(last)
        if start > end or not rendered.startswith(first) or not rendered.endswith(last):
            return False
        for piece in self.pieces[1:-1]:
            found = rendered.find(piece, start, end)
            if found < 0:
                return False
            start = found + len(piece)
        return True

    @property
    def is_recognisable(self) -> bool:
        """Return whether enough of the line is literal to recognise it."""
        return sum(c.isalnum() for piece in self.pieces for c in piece) >= _MIN_LITERAL_CHARACTERS


class Outline:
    """The lines of a text with their nesting by indentation."""

    def __init__(self, text: str) -> None:
        self.lines = list(_outline_lines(text))
        self._by_number = {line.number: index for index, line in enumerate(self.lines)}
        self._same: dict[str, list[int]] = {}
        self._flexible: list[int] = []
        self._found: dict[tuple[tuple[str, ...], bool], list[int]] = {}
        for index, line in enumerate(self.lines):
            if len(line.pieces) == 1:
                self._same.setdefault(line.text, []).append(index)
            elif line.is_recognisable:
                self._flexible.append(index)

    def nested_texts(self, number: int) -> list[str]:
        """The text of the line `number`, from 1, then of those in which it is nested."""
        index = self._by_number.get(number, -1)
        return list(self._texts(index))

    def _texts(self, index: int) -> Iterator[str]:
        while index >= 0:
            yield self.lines[index].text
            index = self.lines[index].parent

    def find_exact(self, chain: Sequence[str], work: WorkBudget) -> list[int]:
        """The numbers of the lines that have just this `chain`."""
        candidates = self._same.get(chain[0], [])
        if not work.try_spend(len(candidates) * len(chain)):
            return []
        wanted = list(chain)
        return [self.lines[i].number for i in candidates if list(self._texts(i)) == wanted]

    def find(self, chain: Sequence[str], work: WorkBudget, *, is_literal: bool) -> list[int]:
        """The numbers of the lines that are most likely rendered as `chain`.

        They are nested in what can be the second line of `chain`, and in most of the others. They
        have placeholders only if they need not be literal. Without any `work` left none is found.
        """
        candidates = self._same.get(chain[0], []) if is_literal else self._flexible
        key = (tuple(chain), is_literal)
        if key not in self._found:
            if not work.try_spend(1 + len(chain) + len(candidates) * (1 + len(chain[0]) // 1000)):
                return []
            self._found[key] = self._best_matches(chain, candidates, work)
        return self._found[key]

    def _best_matches(
        self, chain: Sequence[str], candidates: Sequence[int], work: WorkBudget
    ) -> list[int]:
        best: list[int] = []
        most = -1
        for index in candidates:
            line = self.lines[index]
            if line.can_render_as(chain[0]) and self._is_nested(line, chain[1:2]):
                if not work.try_spend(2 * len(chain)):
                    break
                common = self._matching_parents(line.parent, chain[1:])
                if common > most:
                    best, most = [], common
                if common == most:
                    best.append(line.number)
        return best

    def _is_nested(self, line: OutlineLine, parents: Sequence[str]) -> bool:
        if not parents:
            return True
        return line.parent >= 0 and self.lines[line.parent].can_render_as(parents[0])

    def _matching_parents(self, index: int, parents: Sequence[str]) -> int:
        """Return how many of `parents` the line at `index` and its own parents can be.

        They must be in this order.
        """
        found = 0
        for text in parents:
            candidate = index
            while candidate >= 0 and not self.lines[candidate].can_render_as(text):
                candidate = self.lines[candidate].parent
            if candidate >= 0:
                found += 1
                index = self.lines[candidate].parent
        return found


def _outline_lines(text: str) -> Iterator[OutlineLine]:
    stack: list[tuple[int, bool, int]] = []  # column, whether a list item, index
    index = 0
    is_in_action = False
    for number, raw in enumerate(text.split("\n"), 1):
        if number > _MAX_LINES:
            return
        if is_in_action:
            is_in_action = "}}" not in raw
            continue
        if raw.startswith("---"):
            stack.clear()
            continue
        stripped = raw.strip()
        pieces = _literal_pieces(stripped)
        is_in_action = raw.rfind("{{") > raw.rfind("}}")
        if not any(pieces) or stripped.startswith("#"):
            continue
        column, is_item = len(raw) - len(raw.lstrip()), stripped.startswith("-")
        while stack and (
            stack[-1][0] > column or (stack[-1][0] == column and (stack[-1][1] or not is_item))
        ):
            stack.pop()
        yield OutlineLine(number, " ".join(pieces), pieces, stack[-1][2] if stack else -1)
        stack.append((column, is_item, index))
        index += 1


def _literal_pieces(stripped: str) -> tuple[str, ...]:
    """The literal texts of a line between its placeholders."""
    pieces = []
    rest = stripped
    while "{{" in rest:
        literal, _, rest = rest.partition("{{")
        pieces.append(literal)
        rest = rest.partition("}}")[2]
    pieces.append(rest.partition(" #")[0])
    pieces[0] = pieces[0].removeprefix("- ").lstrip() if pieces[0] != "-" else ""
    cleaned = [piece.replace('"', "").replace("'", "") for piece in pieces]
    cleaned[-1] = cleaned[-1].rstrip()
    return tuple(cleaned)


_SOURCE_PATTERN = re.compile(r"(?:\A|\n)---\n# Source: ([^\n]*)")


class ChartOrigins:
    """Finds the lines of one rendering of a chart in its templates and values files.

    helm writes the name of the template above each object, and nothing about lines.
    """

    def __init__(self, rendered: RenderedChart, files: SourceFiles, work: WorkBudget) -> None:
        self._rendered = rendered
        self._files = files
        self._work = work
        sources = list(_SOURCE_PATTERN.finditer(rendered.source.text))
        self._starts = [source.start() for source in sources]
        self._names = [self._path(source[1].strip()) for source in sources]
        self._lines = File(rendered.source)
        self._rendering = Outline(rendered.source.text)
        self._outlines: dict[str, Outline] = {}

    def find(self, located: LocatedFinding) -> Origin | None:
        """The place in the template, or in the values file that a template has included.

        If the line is in neither, it is the nearest line in the template in which it is nested.
        """
        index = bisect_left(self._starts, located.span.start) - 1
        template = self._template(index)
        if not template:
            return None
        chain = self._rendering.nested_texts(located.span.line)
        if chain:
            # A placeholder may stand for anything, so the same text elsewhere is better evidence.
            for name in (template, *self._values_files(template)):
                if found := self._outline(name).find(chain, self._work, is_literal=True):
                    return self._origin(name, self._line_rendered_as(found, located, chain, index))
        outline = self._outline(template)
        for depth in range(len(chain)):
            for is_literal in (True, False):
                if found := outline.find(chain[depth:], self._work, is_literal=is_literal):
                    return self._origin(template, found[0])
        return self._origin(template, 1)

    def _values_files(self, template: str) -> Iterator[str]:
        """The values files that `template` may have its text from, the strongest first."""
        yield from reversed(self._rendered.values_files)
        inside = os.path.relpath(template, self._rendered.folder).split(os.sep)
        depth = inside.index("templates") if "templates" in inside else 0
        if depth:  # the template of a subchart
            yield os.path.join(self._rendered.folder, *inside[:depth], "values.yaml")

    def _line_rendered_as(
        self, found: Sequence[int], located: LocatedFinding, chain: Sequence[str], index: int
    ) -> int:
        """The one of the lines `found` from which the line of the finding is rendered.

        Items of a list may be equal but for keys that come later. They are rendered in their order,
        into one object or into one each: if there are as many equal lines, they are counted.
        """
        if len(found) == 1:
            return found[0]
        same = self._rendering.find_exact(chain, self._work)
        for lines in (self._lines_of_object(same, index), self._lines_of_template(same, index)):
            if len(lines) == len(found) and located.span.line in lines:
                return found[lines.index(located.span.line)]
        return found[0]

    def _lines_of_object(self, lines: Sequence[int], index: int) -> list[int]:
        return [line for line in lines if self._object_index_at(line) == index]

    def _lines_of_template(self, lines: Sequence[int], index: int) -> list[int]:
        name = self._names[index]
        return [line for line in lines if self._names[self._object_index_at(line)] == name]

    def _object_index_at(self, line: int) -> int:
        return bisect_left(self._starts, self._lines.line_start(line)) - 1

    def _template(self, index: int) -> str:
        """The file that helm names above the object; empty if the folder has no such file."""
        name = self._names[index] if index >= 0 else ""
        return name if name and self._files.read(name) else ""

    def _path(self, source: str) -> str:
        """The path of the file that helm calls `source`; empty if it is not in the folder."""
        _, _, inside = source.partition("/")
        is_inside = inside and not inside.startswith("/") and ".." not in inside.split("/")
        return os.path.normpath(os.path.join(self._rendered.folder, inside)) if is_inside else ""

    def _outline(self, name: str) -> Outline:
        if name not in self._outlines:
            file = self._files.read(name)
            self._outlines[name] = Outline(file.source.text if file else "")
        return self._outlines[name]

    def _origin(self, name: str, number: int) -> Origin | None:
        file = self._files.read(name)
        return Origin(file, line_span(file, number)) if file else None
