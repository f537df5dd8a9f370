"""Copies of charts: without what belongs to Git, and with charts that stand in for missing ones.

A template can read every file of its chart. If the chart is a whole repository, that includes the
credentials that CI has written into `.git/config`, and the report would show them to the user
who has written the template. So gpuward renders a copy without them.

`helm template` refuses a chart if a dependency is missing in `charts/`, also one that its condition
or its tags switch off, and never evaluates these before. So gpuward renders a copy of the chart, in
which a chart with one template stands in for each missing one. Then helm itself says, by rendering
that template or not, which of them are switched on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from rules.base.json_values import as_object, as_objects
from sources.kustomization_files import documents_in_file
from sources.rendering.programs import ProgramError
from sources.sources import DISK

GIT_FOLDER = ".git"
_MISSING_PATTERN = re.compile(r"missing in charts/ directory: ([^\n]+)")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_STAND_IN_MARK = "# gpuward: a missing chart: "
_STAND_IN_VERSION = "0.0.0"
_DEPENDENCY_FILES = ("Chart.yaml", "requirements.yaml")
_MAX_COPY_BYTES = 64 * 1024 * 1024


def missing_dependencies(message: str) -> tuple[str, ...]:
    """The charts that helm misses according to its error message.

    It says the name of a chart once for each alias.
    """
    found = _MISSING_PATTERN.search(message)
    names = dict.fromkeys(found[1].replace(" ", "").split(",")) if found else {}
    return tuple(name for name in names if _NAME_PATTERN.fullmatch(name))


@contextmanager
def copy_of_chart(folder: str, missing: Collection[str] = ()) -> Iterator[str]:
    """A copy of the chart in `folder`, with charts that stand in for those in `missing`.

    It has no file of Git. Raises ProgramError if the chart cannot be copied, or is too large.
    """
    with tempfile.TemporaryDirectory(prefix="gpuward-") as place:
        copy = os.path.join(place, "chart")
        try:
            if _size_in_bytes(folder) > _MAX_COPY_BYTES:
                raise ProgramError(f"the chart has more than {_MAX_COPY_BYTES >> 20} MiB")
            shutil.copytree(
                folder,
                copy,
                copy_function=shutil.copyfile,
                ignore=shutil.ignore_patterns(GIT_FOLDER),
            )
            if missing:
                for name in _DEPENDENCY_FILES:
                    _write_dependencies(os.path.join(copy, name), missing)
            for name in missing:
                _write_stand_in(os.path.join(copy, "charts", name), name)
        except OSError as error:  # so is the error of copytree
            raise ProgramError(f"the chart cannot be copied: {error}") from error
        yield copy


def switched_on_charts(rendering: str, missing: Collection[str]) -> list[str]:
    """Those of the `missing` charts that the rendering of the copy has."""
    return [name for name in missing if f"{_STAND_IN_MARK}{name}\n" in rendering]


def _size_in_bytes(folder: str) -> int:
    size = 0
    for here, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != GIT_FOLDER]
        files = (os.path.join(here, name) for name in names)
        size += sum(os.path.getsize(file) for file in files if os.path.exists(file))
    return size


def _write_dependencies(file: str, missing: Collection[str]) -> None:
    """Let the file name the stand-ins: helm takes a chart only in a version that it names."""
    chart = as_object(next(documents_in_file(DISK, file), None))
    dependencies = [entry for _, entry in as_objects(chart.get("dependencies"))]
    if not dependencies:
        return
    changed = [
        {**entry, "version": _STAND_IN_VERSION} if entry.get("name") in missing else entry
        for entry in dependencies
    ]
    with open(file, "w", encoding="utf-8") as out:
        json.dump({**chart, "dependencies": changed}, out)


def _write_stand_in(folder: str, name: str) -> None:
    os.makedirs(os.path.join(folder, "templates"))
    with open(os.path.join(folder, "Chart.yaml"), "w", encoding="utf-8") as out:
        out.write(f"apiVersion: v2\nname: {json.dumps(name)}\nversion: {_STAND_IN_VERSION}\n")
    template = os.path.join(folder, "templates", "missing.yaml")
    with open(template, "w", encoding="utf-8") as out:
        out.write(
            f"{_STAND_IN_MARK}{name}\n"
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: missing}\n"
        )
