"""`gpuward lint --render`: what charts and kustomizations render, and all other files."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator

from lint.linter import Linter
from lint.rendering.chart_origins import ChartOrigins
from lint.rendering.charts import CHART, ChartOptions, RenderedChart, is_library, render_chart
from lint.rendering.discovery import find_charts, find_kustomizations
from lint.rendering.kustomization_origins import KustomizationOrigins
from lint.rendering.kustomizations import (
    choose_rendered,
    read_kustomization,
    render_kustomization,
)
from lint.rendering.places import Places
from lint.rendering.plain_files import ChartFiles
from lint.rendering.programs import MAX_SECONDS_OF_RUN, TOO_LONG, is_late
from lint.sources import Input, SkippedSource, UnreadableSource, UsageError

_LIBRARY = "a library chart: it is evaluated in the charts that use it"
_IGNORED = "a template in no rendering: helm leaves it out, as .helmignore says or as it is hidden"


def start(paths: Iterable[str], options: argparse.Namespace) -> Renderer:
    """The renderer of a run.

    Raises UsageError for options that do not fit, and for files that do not exist.
    """
    if not options.render:
        raise UsageError("--values, --set and --kube-version are for charts: add --render")
    if options.fix or options.diff:
        raise UsageError("what --render evaluates is in no file: fix the templates by hand")
    if options.staged or options.changed_since:
        raise UsageError("--render needs all files: leave --staged and --changed-since out")
    if os.name != "posix":
        raise UsageError("--render works on Linux and macOS only")
    return Renderer(paths, options)


class Renderer:
    """The renderings of one run."""

    def __init__(self, paths: Iterable[str], options: argparse.Namespace) -> None:
        """Raises UsageError for options that do not fit, and for files that do not exist."""
        paths = list(paths)
        self._options = _chart_options(options)
        self._charts = dict(find_charts(paths, options.exclude))
        if len(self._charts) > 1 and (self._options.values or self._options.sets):
            names = ", ".join(list(self._charts)[:5])
            raise UsageError(f"--values and --set are for one chart; here are several: {names}")
        found = [read_kustomization(file) for file in find_kustomizations(paths, options.exclude)]
        self._kustomizations = choose_rendered(found)
        # The files of kustomizations that are evaluated as they are rendered
        self._rendered: set[str] = set()
        self._places = Places()
        self._chart_files = ChartFiles(self._places.files)
        # The objects in resources that no overlay renders, by file
        self._not_rendered: dict[str, frozenset[tuple[str, str]]] = {}
        self._deadline = time.monotonic() + MAX_SECONDS_OF_RUN

    def evaluate(self, linter: Linter, files: Iterable[Input]) -> None:
        """Have `linter` evaluate the renderings, and those of `files` that are in none."""
        linter.evaluate(self._inputs(files))
        active = {active.rule.name: active for active in linter.policy.rule_set().rules}
        self._places.move(linter.results, active)

    def _inputs(self, files: Iterable[Input]) -> Iterator[Input]:
        for folder, root in self._charts.items():
            yield from self._chart(folder, root)
        yield from self._kustomized()
        for item in files:
            if self._chart_files.is_ignored(item.name):
                yield SkippedSource(item.name, _IGNORED)
            elif os.path.normpath(item.name) not in self._rendered and not self._chart_files.has(
                item.name
            ):
                yield item
        yield from self._bases()

    def _chart(self, folder: str, root: str) -> Iterator[Input]:
        file = os.path.join(folder, CHART)
        if is_library(folder):
            yield SkippedSource(file, _LIBRARY)
            return
        for rendered in render_chart(folder, self._options, root, self._deadline):
            if isinstance(rendered, RenderedChart):
                self._chart_files.add(rendered)
                finder = ChartOrigins(rendered, self._places.files, self._places.work)
                self._places.add(rendered.source.name, file, finder)
                yield rendered.source
            else:
                yield rendered

    def _kustomized(self) -> Iterator[Input]:
        for parts in self._kustomizations.tops:
            file = parts[0].file
            if is_late(self._deadline):
                yield UnreadableSource(file, TOO_LONG)
                continue
            rendered = render_kustomization(parts, self._deadline)
            if isinstance(rendered, UnreadableSource):
                yield rendered
                continue
            self._rendered.update(rendered.files)
            finder = KustomizationOrigins(rendered, self._places.files, self._places.work)
            for name, objects in finder.not_rendered():
                self._not_rendered[name] = objects & self._not_rendered.get(name, objects)
            self._places.add(rendered.source.name, file, finder)
            yield rendered.source
        self._rendered -= {name for name, objects in self._not_rendered.items() if objects}

    def _bases(self) -> Iterator[Input]:
        """What users of a base get who apply it by itself."""
        for parts in self._kustomizations.bases:
            file = parts[0].file
            if is_late(self._deadline):
                yield UnreadableSource(file, TOO_LONG)
                continue
            rendered = render_kustomization(parts, self._deadline)
            if isinstance(rendered, UnreadableSource):
                continue  # nobody can apply it by itself
            finder = KustomizationOrigins(rendered, self._places.files, self._places.work)
            self._places.add(rendered.source.name, file, finder, is_base=True)
            yield rendered.source


def _chart_options(options: argparse.Namespace) -> ChartOptions:
    for name in options.values:
        if not os.path.isfile(name):
            raise UsageError(f"--values {name}: there is no such file")
    return ChartOptions(
        tuple(options.values), tuple(options.sets), options.kube_version, options.namespace or ""
    )
