"""Render charts with `helm template`."""

from __future__ import annotations

import glob
import json
import math
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import NamedTuple

from rules.base.json_values import as_object, as_text, display
from sources.containment import is_inside
from sources.kustomization_files import documents_in_file
from sources.rendering.chart_copies import (
    GIT_FOLDER,
    copy_of_chart,
    missing_dependencies,
    switched_on_charts,
)
from sources.rendering.programs import (
    TOO_LONG_MESSAGE,
    ProgramError,
    find_program,
    is_late,
    run_program,
)
from sources.sources import DISK, Source, UnreadableSource

CHART_FILE = "Chart.yaml"
_MAX_MESSAGE_CHARACTERS = 400
_MAX_FILES = 20_000
_MAX_CI_VALUES_FILES = 50
_SCHEMA_FILE = "values.schema.json"
_MAX_SCHEMA_BYTES = 4 << 20
_REFERENCE_KEYS = ("$ref", "$dynamicRef", "$recursiveRef", "$schema")
# Within the same schema, or an address that the renderer has no network for.
_LOCAL_REFERENCE_PATTERN = re.compile(r"#|https?://|\Z")
# Where helm says that it failed: `(name/templates/pod.yaml:3:5)`, or without line or column.
_PLACE_PATTERN = re.compile(
    r"([^\s/()<>\":]+)/((?:[^\s/()<>\":]+/)*[^\s/()<>\":]+)(?::(\d+))?(?::(\d+))?"
)
_NAMESPACE_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# How templates fail that include those of a chart which is not there, or read its values.
_WITHOUT_CHART_PATTERN = re.compile(r'no template "|template "[^"\n]*" not defined|nil pointer')
_REMEDY_BY_MESSAGE = {
    "missing in charts/": "`helm dependency build {folder}` fetches them, which gpuward never does",
    "kubeVersion": "choose another version of Kubernetes with --kube-version",
    "": "`{command}` shows it; if it needs values or a namespace, give them with --values, --set "
    "and --namespace, or values in the chart's ci/NAME-values.yaml",
}


class ChartOptions(NamedTuple):
    """The options that the user gives to helm."""

    values_files: tuple[str, ...] = ()
    set_values: tuple[str, ...] = ()
    kube_version: str = ""
    namespace: str = ""


class RenderedChart(NamedTuple):
    """One rendering of the chart in `folder`; of its values files, later ones win.

    `missing_dependencies` are dependencies that are switched off, and not in the chart.
    """

    source: Source
    folder: str
    values_files: tuple[str, ...]
    missing_dependencies: tuple[str, ...] = ()


def is_library(folder: str) -> bool:
    """Return whether the chart only has templates for other charts.

    Then nothing can be rendered.
    """
    content = next(documents_in_file(DISK, os.path.join(folder, CHART_FILE)), None)
    return as_object(content).get("type") == "library"


def render_chart(
    folder: str, options: ChartOptions, root: str, deadline: float = math.inf
) -> Iterator[RenderedChart | UnreadableSource]:
    """The renderings of a chart: with the user's values, else its defaults and each of its `ci`.

    Charts that cannot be rendered with their defaults are common. If one of the files in `ci` can,
    the failure of the defaults is not reported. `root` is the folder that no link may lead out of.
    After `deadline`, a `time.monotonic()` in seconds, nothing is rendered, and no
    rendering lasts longer.
    """
    file = os.path.join(folder, CHART_FILE)
    with ExitStack() as stack:
        try:
            helm = find_program("helm")
            _check_files(folder, root)
            place = stack.enter_context(copy_of_chart(folder)) if _has_git(folder) else folder
        except ProgramError as error:
            yield UnreadableSource(file, f"a chart: {error}")
            return
        yield from _render_all(helm, folder, place, options, deadline)


def _render_all(
    helm: str, folder: str, place: str, options: ChartOptions, deadline: float
) -> Iterator[RenderedChart | UnreadableSource]:
    """The renderings of the chart in `folder`, which helm reads in `place`."""
    file = os.path.join(folder, CHART_FILE)
    of_ci = [] if options.values_files or options.set_values else _ci_values_files(folder)
    if len(of_ci) > _MAX_CI_VALUES_FILES:
        why = (
            f"more than {_MAX_CI_VALUES_FILES} files ci/*-values.yaml: "
            "give those that matter with --values"
        )
        yield UnreadableSource(file, why)
        of_ci = []
    failed: UnreadableSource | None = None
    is_rendered = False
    reported: set[UnreadableSource] = set()  # often all renderings fail for the same reason
    for values in (options.values_files, *((name,) for name in of_ci)):
        if is_late(deadline):
            yield UnreadableSource(file, TOO_LONG_MESSAGE)
            break
        rendered = _render(helm, folder, place, options._replace(values_files=values), deadline)
        is_rendered = is_rendered or isinstance(rendered, RenderedChart)
        if values == options.values_files and isinstance(rendered, UnreadableSource):
            failed = rendered
        elif rendered not in reported:
            if isinstance(rendered, UnreadableSource):
                reported.add(rendered)
            yield rendered
    if failed and not is_rendered and failed not in reported:
        yield failed


def _ci_values_files(folder: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(folder), "ci", "*-values.yaml")))


def _render(
    helm: str, folder: str, place: str, options: ChartOptions, deadline: float
) -> RenderedChart | UnreadableSource:
    if any("\n" in file or "\r" in file for file in options.values_files):
        why = "a chart: a values file has a line break in its name, which helm does not take"
        return UnreadableSource(os.path.join(folder, CHART_FILE), why)
    arguments = [f"--values={_as_csv_record(file)}" for file in options.values_files]
    arguments += [f"--set={value}" for value in options.set_values]
    if options.kube_version:
        arguments.append(f"--kube-version={options.kube_version}")
    if options.namespace:
        arguments.append(f"--namespace={options.namespace}")
    command = shlex.join(["helm", "template", folder, *arguments])
    absent: tuple[str, ...] = ()
    try:
        text = run_program(
            [helm, "template", os.path.abspath(place), *arguments], deadline=deadline
        )
    except ProgramError as error:
        message = str(error)
        absent = missing_dependencies(message)
        if not absent and not options.namespace and "namespace" in message.lower():
            # Some charts refuse the namespace `default`, which is helm's.
            named = options._replace(namespace=_name(folder))
            return _render(helm, folder, place, named, deadline)
        if not absent:
            return _failure(folder, command, message)
        try:
            text = _render_without(absent, helm, folder, arguments, deadline)
        except ProgramError as other:
            return _failure(folder, command, str(other))
    own = os.path.join(folder, "values.yaml")
    source = Source(command, text, is_rendering=True, folder=folder)
    return RenderedChart(source, folder, (own, *options.values_files), absent)


def _render_without(
    missing: tuple[str, ...], helm: str, folder: str, arguments: list[str], deadline: float
) -> str:
    """Return what helm renders without the `missing` dependencies.

    Raises ProgramError if helm fails, or if not all of the dependencies are switched off. A chart
    whose templates fail without theirs, as of a library, needs them.
    """
    needed = [*missing]
    with copy_of_chart(folder, missing) as copy:
        try:
            text = run_program([helm, "template", copy, *arguments], deadline=deadline)
            needed = switched_on_charts(text, missing)
        except ProgramError as error:
            if not _WITHOUT_CHART_PATTERN.search(str(error)):
                raise
    if needed:
        raise ProgramError(f"these dependencies are missing in charts/: {', '.join(needed)}")
    return text


def _name(folder: str) -> str:
    """A name for a namespace: that of the chart, or one that every chart accepts."""
    name = as_text(
        as_object(next(documents_in_file(DISK, os.path.join(folder, CHART_FILE)), None)).get("name")
    )
    return name if _NAMESPACE_PATTERN.fullmatch(name) else "gpuward-render"


def _as_csv_record(path: str) -> str:
    """`path` as a record of CSV, which is how helm reads it: several files are split at commas."""
    return '"{}"'.format(path.replace('"', '""')) if "," in path or '"' in path else path


def _failure(folder: str, command: str, message: str) -> UnreadableSource:
    """Return why the chart cannot be rendered.

    The result names the place in the template that failed if `message` does.
    """
    remedy = next(advice for word, advice in _REMEDY_BY_MESSAGE.items() if word in message)
    lines = [line for line in message.splitlines() if line.strip() and "--debug" not in line]
    short = " ".join(" ".join(lines).removeprefix("Error: ").split())
    if len(short) > _MAX_MESSAGE_CHARACTERS:
        short = f"{short[:_MAX_MESSAGE_CHARACTERS]}…"
    why = f"the chart cannot be rendered: {short}; {remedy.format(folder=folder, command=command)}"
    for place in _PLACE_PATTERN.finditer(message):
        file = os.path.join(folder, place[2])
        if os.path.isfile(file):
            return UnreadableSource(file, why, int(place[3] or 1), int(place[4] or 1))
    return UnreadableSource(os.path.join(folder, CHART_FILE), why)


def _check_files(folder: str, root: str) -> None:
    """Raise ProgramError if something in the chart is not what helm may read.

    helm follows links, which may not lead out of `root`, not to what belongs to Git, and not to a
    folder that they are in.
    """
    inside = os.path.realpath(root)
    count = 0
    for here, folders, files in _walk_chart(folder):
        count += len(folders) + len(files)
        if count > _MAX_FILES:
            raise ProgramError(f"it has more than {_MAX_FILES} files")
        for name in (*folders, *files):
            path = os.path.join(here, name)
            if not os.path.islink(path):
                continue
            target = os.path.realpath(path)
            if not is_inside(target, inside):
                raise ProgramError(f"{path} is a link that leads out of {root}")
            if GIT_FOLDER in target.split(os.sep):
                raise ProgramError(f"{path} is a link to what belongs to Git")
            if is_inside(os.path.realpath(here), target):
                raise ProgramError(f"{path} is a link to a folder that it is in")
        for name in files:
            _check_file(os.path.join(here, name))


def _walk_chart(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the folders of a chart as `os.walk` does, without what belongs to Git."""
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != GIT_FOLDER]
        yield here, folders, [name for name in files if name != GIT_FOLDER]


def _has_git(folder: str) -> bool:
    """Return whether something that belongs to Git is in the chart."""
    return any(
        os.path.lexists(os.path.join(here, GIT_FOLDER)) for here, _, _ in _walk_chart(folder)
    )


def _check_file(path: str) -> None:
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise ProgramError(f"{path} is not a regular file")
    if os.path.basename(path) == _SCHEMA_FILE:
        _check_schema(path)


def _check_schema(path: str) -> None:
    """Raise ProgramError if the schema of a chart's values refers to another file.

    helm reads any file that it names, and says in its message what that has for a schema.
    """
    try:
        waiting = [json.loads(DISK.read(path, _MAX_SCHEMA_BYTES))]
    except (ValueError, RecursionError):
        return  # helm says what is wrong
    except OSError as error:
        raise ProgramError(f"{path}: {error}") from error
    for value in waiting:
        if isinstance(value, dict):
            for key, inner in value.items():
                is_reference = key in _REFERENCE_KEYS and isinstance(inner, str)
                if is_reference and not _LOCAL_REFERENCE_PATTERN.match(inner):
                    raise ProgramError(f"{path} refers to another file: {display(inner)}")
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


# Which files of a chart helm leaves out, as the chart's `.helmignore` says.
#
# This explains why a file is in no rendering; what helm renders is up to helm.

_HELMIGNORE_FILE = ".helmignore"
_HIDDEN_TEMPLATES = "templates/.?*"  # which helm ignores in every chart
_MAX_HELMIGNORE_BYTES = 64 * 1024


def helm_ignore_test(chart: str) -> Callable[[str], bool]:
    """Return a test of whether helm leaves out a file of the folder `chart`, by its path in it."""
    try:
        text = DISK.read(os.path.join(chart, _HELMIGNORE_FILE), _MAX_HELMIGNORE_BYTES).decode(
            errors="replace"
        )
    except OSError:
        text = ""
    lines = (line.strip() for line in (*text.splitlines(), _HIDDEN_TEMPLATES))
    patterns = [line.replace("[^", "[!") for line in lines if line and not line.startswith("#")]

    def is_ignored(path: str) -> bool:
        parts = path.split("/")
        return any(
            _is_named(parts[: end + 1], patterns, is_folder=end + 1 < len(parts))
            for end in range(len(parts))
        )

    return is_ignored


def _is_named(parts: list[str], patterns: list[str], *, is_folder: bool) -> bool:
    """Return whether a pattern names the file or folder.

    The first pattern that names or excludes it decides, as in helm.
    """
    for pattern in patterns:
        rule = pattern.removeprefix("!")
        fits = (is_folder or not rule.endswith("/")) and _matches_helm_pattern(
            rule.removesuffix("/"), parts
        )
        if fits != pattern.startswith("!"):
            return True
    return False


def _matches_helm_pattern(rule: str, parts: list[str]) -> bool:
    """Return whether `rule` fits a path; without a slash in it, the name at its end."""
    if "/" not in rule:
        return fnmatchcase(parts[-1], rule)
    wanted = rule.removeprefix("/").split("/")
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))
