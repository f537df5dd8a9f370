"""`gpuward lint --render`: what charts and kustomizations render, and all other files."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from kubeyaml import Document
from lint.linter import Linter
from lint.rendering.chart_origins import ChartOrigins
from lint.rendering.kustomization_origins import KustomizationOrigins
from lint.rendering.origins import RenderingOrigins, SourceFiles
from lint.settings import LintSettings
from reports.results import Remark
from rules.engine.rule_set import ActiveRule
from sources.manifests import File
from sources.paths import Exclusion, files_at
from sources.rendering.charts import (
    CHART_FILE,
    ChartOptions,
    RenderedChart,
    helm_ignore_test,
    is_library,
    render_chart,
)
from sources.rendering.kustomizations import (
    Kustomization,
    RenderedKustomization,
    choose_rendered,
    read_kustomization,
    render_kustomization,
)
from sources.rendering.programs import MAX_SECONDS_OF_RUN, TOO_LONG_MESSAGE, is_late, stop_all
from sources.sources import (
    KUSTOMIZATION_FILES,
    Input,
    InputFile,
    SkippedSource,
    Source,
    UnreadableSource,
    UsageError,
    has_placeholder,
)

_RenderResult: TypeAlias = RenderedKustomization | UnreadableSource
_MAX_JOBS = 4
_RENDERINGS_AHEAD = 2  # renderings for each program that may wait to be evaluated


def find_charts(paths: Iterable[str], exclude: Exclusion) -> Iterator[tuple[str, str]]:
    """The folder of each chart that is no part of another, and the path it was found at."""
    for root in paths:
        folders = {os.path.dirname(name) for name in _files_named(root, (CHART_FILE,), exclude)}
        for folder in sorted(folders):
            above, own = os.path.split(os.path.dirname(folder))
            if own != "charts" or above not in folders:
                base = root if os.path.isdir(root) else folder
                yield os.path.normpath(folder or "."), base


def find_kustomizations(paths: Iterable[str], exclude: Exclusion) -> Iterator[str]:
    """The files of all kustomizations."""
    for root in paths:
        yield from sorted(_files_named(root, KUSTOMIZATION_FILES, exclude))


def _files_named(path: str, wanted: Collection[str], exclude: Exclusion) -> Iterator[str]:
    """The readable files below `path` whose name is in `wanted`."""
    for name in files_at(path, exclude) if path != "-" else ():
        if not isinstance(name, str) or os.path.basename(name) not in wanted:
            continue
        if not InputFile(name, path).refusal() and os.path.isfile(name):
            yield name


_CHART_SUBFOLDERS = ("templates", "charts")


class ChartFiles:
    """The files of the charts that a run has rendered.

    A comment of helm names the template of each object, but a template may write such a comment
    too. So a file without placeholders counts as rendered only if a rendering has its objects.
    A rendering lacks them if `.helmignore` names the file, or if the condition of a subchart is
    false.
    """

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._is_ignored: dict[str, Callable[[str], bool]] = {}
        self._renderings: dict[str, list[Source]] = {}
        self._failed: set[str] = set()
        self._values: set[str] = set()
        self._objects: dict[str, set[bytes]] = {}

    def add(self, rendered: RenderedChart) -> None:
        """Remember a rendering."""
        for name in _CHART_SUBFOLDERS:
            folder = os.path.normpath(os.path.join(rendered.folder, name))
            self._renderings.setdefault(folder, []).append(rendered.source)
        self._values.update(map(os.path.normpath, rendered.values_files))

    def add_failed(self, chart: str) -> None:
        """Remember a chart of which there is no rendering, as the report says."""
        self._failed.add(chart)

    def uses_values(self, name: str) -> bool:
        """Return whether a rendering has the values in the file.

        A rendering that failed counts if it would have had them.
        """
        path = os.path.normpath(name)
        if path in self._values:
            return True
        is_own = os.path.basename(path) == "values.yaml"
        return (is_own and bool(self._folder_of(path))) or self._is_in_failed(path)

    def _is_in_failed(self, path: str) -> bool:
        return any(path.startswith(os.path.join(chart, "")) for chart in self._failed)

    def is_unrendered(self, name: str) -> bool:
        """Return whether the file is a template of a chart that could not be rendered."""
        path = os.path.normpath(name)
        if not self._is_in_failed(path):
            return False
        file = self._files.read(name)
        is_template = "templates" in path.split(os.sep)
        return is_template and file is not None and has_placeholder(file.source.text)

    def is_ignored(self, name: str) -> bool:
        """Return whether the file is a template that helm leaves out.

        Then nothing can evaluate it.
        """
        folder = self._folder_of(name)
        file = self._files.read(name) if folder else None
        if file is None or not has_placeholder(file.source.text):
            return False
        chart = os.path.dirname(folder)
        if chart not in self._is_ignored:
            self._is_ignored[chart] = helm_ignore_test(chart)
        return self._is_ignored[chart](os.path.relpath(name, chart or "."))

    def is_evaluated_rendered(self, name: str) -> bool:
        """Return whether the file is evaluated as it is rendered."""
        folder = self._folder_of(name)
        if not folder:
            return False
        file = self._files.read(name)
        if file is None:
            return False
        if has_placeholder(file.source.text):
            return True
        own = _objects_in_file(file)
        return not own or own <= self._rendered_objects(folder)

    def _folder_of(self, name: str) -> str:
        """The folder of templates or charts that the file is in; empty if it is in none."""
        folder = os.path.dirname(os.path.normpath(name))
        while folder not in self._renderings:
            if folder == os.path.dirname(folder):
                return ""
            folder = os.path.dirname(folder)
        return folder

    def _rendered_objects(self, folder: str) -> set[bytes]:
        if folder not in self._objects:
            sources = self._renderings[folder]
            self._objects[folder] = set().union(
                *(_objects_in_file(File(source)) for source in sources)
            )
        return self._objects[folder]


def _objects_in_file(file: File) -> set[bytes]:
    """A digest of each object in the file."""
    documents = (each for each in file.manifests() if isinstance(each, Document))
    return {sha256(repr(each.value).encode()).digest() for each in documents}


if TYPE_CHECKING:
    from sources.git.changes import StagedFiles

_MARKING_FILES = (CHART_FILE, *KUSTOMIZATION_FILES)
_LIBRARY_REASON = "a library chart: it is evaluated in the charts that use it"
_LEFT_OUT_MESSAGE = "rendered without dependencies that are switched off and not in charts/: {}"
_NO_CHART_MESSAGE = "{} had no effect: no chart is here; give the folder of its Chart.yaml"
_IGNORED_REASON = (
    "a template in no rendering: helm leaves it out, as .helmignore says or as it is hidden"
)


class Changes(Protocol):
    """Answers about what has changed, if the run lints only that."""

    def is_changed(self, name: str) -> bool:
        """Return whether the file has changed."""

    def has_changes_in(self, folder: str) -> bool:
        """Return whether a file in the folder, or below, has changed or is gone."""


def evaluate_renderings(
    linter: Linter,
    files: Collection[Input],
    settings: LintSettings,
    exclude: Exclusion,
    changes: Changes | StagedFiles | None,
) -> None:
    """Have `linter` evaluate what is rendered, and those of `files` that are in no rendering.

    With `changes`, only charts and kustomizations of which a file has changed are rendered.

    Raises UsageError for options that do not fit, and for files that do not exist.
    """
    if not settings.rendering.is_on:
        raise UsageError("--values, --set and --kube-version are for charts: add --render")
    if settings.fixes.fix or settings.fixes.diff:
        why = "what --render evaluates is in no file, so that no edit of a file can be verified"
        raise UsageError(f"{why}: fix the templates and patches by hand, where the findings are")
    if os.name != "posix":
        raise UsageError("--render works on Linux and macOS only")
    if not settings.inputs.staged:
        Renderer(settings, exclude, changes).evaluate_renderings(linter, files)
        return
    staged = cast("StagedFiles", changes)
    values = tuple(staged.relative_names(settings.rendering.values_files))
    names = staged.relative_names(settings.inputs.paths or [staged.tree.root])
    with staged.working_copy(_MARKING_FILES, values):
        there = tuple(name for name in names if os.path.lexists(name))
        in_copy = settings._replace(
            inputs=settings.inputs._replace(paths=there),
            rendering=settings.rendering._replace(values_files=values),
        )
        Renderer(in_copy, exclude, staged).evaluate_renderings(linter, files)


class Renderer:
    """The renderings of one run."""

    def __init__(self, settings: LintSettings, exclude: Exclusion, changes: Changes | None) -> None:
        """Raises UsageError for options that do not fit, and for files that do not exist."""
        paths = settings.inputs.paths
        self._changes = changes
        self._has_changes = cache(changes.has_changes_in) if changes else _every_folder
        self._options = _chart_options(settings)
        self._options_given = settings.rendering.chart_options
        self._charts = dict(find_charts(paths, exclude))
        if len(self._charts) > 1 and (self._options.values_files or self._options.set_values):
            names = ", ".join(list(self._charts)[:5])
            raise UsageError(f"--values and --set are for one chart; here are several: {names}")
        found = [read_kustomization(file) for file in find_kustomizations(paths, exclude)]
        self._kustomizations = choose_rendered(found)
        # The files of kustomizations that are evaluated as they are rendered
        self._rendered_files: set[str] = set()
        self._places = RenderingOrigins()
        self._chart_files = ChartFiles(self._places.files)
        # The objects in resources that no overlay renders, by file
        self._not_rendered: dict[str, frozenset[tuple[str, str]]] = {}
        self._deadline = time.monotonic() + MAX_SECONDS_OF_RUN
        self._jobs = _job_count(settings.inputs.jobs)

    def evaluate_renderings(self, linter: Linter, files: Iterable[Input]) -> None:
        """Have `linter` evaluate the renderings, and those of `files` that are in none.

        A remark says that there is no chart for the options that are given.
        """
        linter.evaluate(self._inputs(files), self._chart_files.uses_values)

        @cache
        def rules_of(folder: str) -> dict[str, ActiveRule]:
            rules = linter.policy_of(folder, is_folder=True).rules
            return {active.rule.name: active for active in rules.rules}

        self._places.move_findings(linter.results, rules_of)
        # Most commits change no chart.
        if self._options_given and not self._charts and self._changes is None:
            why = _NO_CHART_MESSAGE.format(" and ".join(self._options_given))
            linter.results.remarks.append(Remark("warning", "", 0, 0, why))

    def _inputs(self, files: Iterable[Input]) -> Iterator[Input]:
        has_values = self._changes and any(
            map(self._changes.is_changed, self._options.values_files)
        )
        for folder, root in self._charts.items():
            if has_values or self._has_changes(folder):
                yield from self._chart(folder, root)
        yield from self._kustomizations_to_lint()
        for item in files:
            if self._chart_files.is_ignored(item.name):
                yield SkippedSource(item.name, _IGNORED_REASON)
                continue
            if self._chart_files.is_unrendered(item.name):
                continue
            is_rendered = os.path.normpath(item.name) in self._rendered_files
            if not is_rendered and not self._chart_files.is_evaluated_rendered(item.name):
                yield item
        yield from self._bases_alone()

    def _chart(self, folder: str, root: str) -> Iterator[Input]:
        file = os.path.join(folder, CHART_FILE)
        if is_library(folder):
            yield SkippedSource(file, _LIBRARY_REASON)
            return
        missing_dependencies: set[str] = set()
        has_rendering = False
        for rendered in render_chart(folder, self._options, root, self._deadline):
            if isinstance(rendered, RenderedChart):
                has_rendering = True
                missing_dependencies.update(rendered.missing_dependencies)
                rendered = rendered._replace(source=self._shared(rendered.source))  # noqa: PLW2901
                self._chart_files.add(rendered)
                finder = ChartOrigins(rendered, self._places.files, self._places.work)
                self._places.add(rendered.source.name, file, finder)
                yield rendered.source
            else:
                yield rendered
        if missing_dependencies:
            yield SkippedSource(
                file, _LEFT_OUT_MESSAGE.format(", ".join(sorted(missing_dependencies)))
            )
        if not has_rendering:
            self._chart_files.add_failed(folder)

    def _shared(self, source: Source) -> Source:
        """A rendering that has its documents in common with others."""
        return source._replace(reader=self._places.files.reader)

    def _kustomizations_to_lint(self) -> Iterator[Input]:
        for file, rendered in self._render(self._kustomizations.tops):
            if isinstance(rendered, UnreadableSource):
                yield rendered
                continue
            self._rendered_files.update(rendered.files)
            finder = KustomizationOrigins(rendered, self._places.files, self._places.work)
            for name, objects in finder.not_rendered():
                self._not_rendered[name] = objects & self._not_rendered.get(name, objects)
            self._places.add(rendered.source.name, file, finder)
            yield rendered.source
        self._rendered_files -= {name for name, objects in self._not_rendered.items() if objects}

    def _bases_alone(self) -> Iterator[Input]:
        """Yield what users get who apply a base by itself."""
        for file, rendered in self._render(self._kustomizations.bases):
            if isinstance(rendered, UnreadableSource):
                if rendered.why == TOO_LONG_MESSAGE:
                    yield rendered
                continue  # no user can apply it by itself
            finder = KustomizationOrigins(rendered, self._places.files, self._places.work)
            self._places.add(rendered.source.name, file, finder, is_base=True)
            yield rendered.source

    def _render(
        self, kustomizations: Iterable[tuple[Kustomization, ...]]
    ) -> Iterator[tuple[str, _RenderResult]]:
        """The file of each of `kustomizations` that has changed, and what it renders."""
        wanted = [
            parts
            for parts in kustomizations
            if any(self._has_changes(part.folder) for part in parts)
        ]
        pool = ThreadPoolExecutor(self._jobs)
        waiting: deque[tuple[str, Future[_RenderResult]]] = deque()
        try:
            for parts in wanted:
                waiting.append((parts[0].file, pool.submit(self._rendered, parts)))
                if len(waiting) > self._jobs * _RENDERINGS_AHEAD:
                    yield _next_result(waiting)
            while waiting:
                yield _next_result(waiting)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()  # after Ctrl-C, the user does not wait for them

    def _rendered(self, parts: tuple[Kustomization, ...]) -> _RenderResult:
        if is_late(self._deadline):
            return UnreadableSource(parts[0].file, TOO_LONG_MESSAGE)
        rendered = render_kustomization(parts, self._deadline)
        if isinstance(rendered, UnreadableSource):
            return rendered
        return rendered._replace(source=self._shared(rendered.source))


def _next_result(waiting: deque[tuple[str, Future[_RenderResult]]]) -> tuple[str, _RenderResult]:
    file, future = waiting.popleft()
    return file, future.result()


def _job_count(wanted: int | None) -> int:
    """Return how many programs run at once: each may take as much memory as one is allowed."""
    return wanted or min(os.cpu_count() or 1, _MAX_JOBS)


def _every_folder(_folder: str) -> bool:
    return True


def _chart_options(settings: LintSettings) -> ChartOptions:
    rendering = settings.rendering
    for name in rendering.values_files:
        if not os.path.isfile(name):
            raise UsageError(f"--values {name}: there is no such file")
    return ChartOptions(
        values_files=rendering.values_files,
        set_values=rendering.set_values,
        kube_version=rendering.kube_version,
        namespace=settings.inputs.namespace or "",
    )
