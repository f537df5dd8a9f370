"""Where the objects of a rendered chart are from: templates and values files."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator

from lint.rendering.origins import Origin, SourceFiles, Work, line_span
from lint.rendering.template_lines import Outline
from reports.findings import LocatedFinding
from sources.rendering.charts import RenderedChart

_SOURCE = re.compile(r"(?:\A|\n)---\n# Source: ([^\n]*)")


class ChartOrigins:
    """Finds the lines of one rendering of a chart in its templates and values files.

    helm writes the name of the template above each object, and nothing about lines.
    """

    def __init__(self, rendered: RenderedChart, files: SourceFiles, work: Work) -> None:
        self._rendered = rendered
        self._files = files
        self._work = work
        sources = list(_SOURCE.finditer(rendered.source.text))
        self._starts = [source.start() for source in sources]
        self._names = [self._path(source[1].strip()) for source in sources]
        self._rendering = Outline(rendered.source.text)
        self._outlines: dict[str, Outline] = {}

    def find(self, located: LocatedFinding) -> Origin | None:
        """The place in the template, or in the values file that a template has included.

        If the line is in neither, it is the nearest line in the template in which it is nested.
        """
        template = self._template_of(located)
        if not template:
            return None
        chain = self._rendering.chain(located.span.line)
        if chain:
            # A placeholder may stand for anything, so the same text elsewhere is better evidence.
            for name in (template, *self._values_files(template)):
                if number := self._outline(name).find(chain, self._work, is_literal=True):
                    return self._origin(name, number)
        outline = self._outline(template)
        for depth in range(len(chain)):
            for is_literal in (True, False):
                if number := outline.find(chain[depth:], self._work, is_literal=is_literal):
                    return self._origin(template, number)
        return self._origin(template, 1)

    def _values_files(self, template: str) -> Iterator[str]:
        """The values files that `template` may have its text from, the strongest first."""
        yield from reversed(self._rendered.values_files)
        inside = os.path.relpath(template, self._rendered.folder).split(os.sep)
        depth = inside.index("templates") if "templates" in inside else 0
        if depth:  # the template of a subchart
            yield os.path.join(self._rendered.folder, *inside[:depth], "values.yaml")

    def _template_of(self, located: LocatedFinding) -> str:
        """The file that helm names above the object; empty if the folder has no such file."""
        index = bisect_left(self._starts, located.span.start) - 1
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
