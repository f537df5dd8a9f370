"""Render kustomizations with `kubectl kustomize` or `kustomize build`."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text, display
from sources.kustomization_files import as_list, documents_in_file
from sources.rendering.chart_copies import GIT_FOLDER
from sources.rendering.programs import ProgramError, find_program, run_program
from sources.sources import DISK, KUSTOMIZATION_FILES, Source, UnreadableSource

_PART_FIELDS = ("resources", "bases", "components")
_PATCH_FIELDS = ("patches", "patchesStrategicMerge", "patchesJson6902")
# Fields that name files, which kustomize may also load from addresses
_FILE_FIELDS = (
    *(
        *_PART_FIELDS,
        *_PATCH_FIELDS,
        "crds",
        "configurations",
        "generators",
        "transformers",
        "validators",
    ),
    *("openapi", "replacements", "configMapGenerator", "secretGenerator", "helmCharts"),
)
_ADDRESS_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|git@|git::")
_MAX_MESSAGE_CHARACTERS = 400


class Kustomization(NamedTuple):
    """One kustomization; paths are relative to where `file` is.

    - `folders`: those of the kustomizations that it includes.
    - `resources`, `patches`: the files that it names.
    - `inline_patches`: the patches written in it, each with its path in the file.
    - `prefix`, `suffix`: what it puts around the names of objects.
    - `remote_address`: something that is in no folder here, which kustomize would have to load.
    - `git_file_name`: a file of Git that it would read.
    """

    file: str
    folders: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    inline_patches: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    is_component: bool = False
    remote_address: str = ""
    prefix: str = ""
    suffix: str = ""
    git_file_name: str = ""

    @property
    def folder(self) -> str:
        """The folder that the kustomization is in."""
        return os.path.dirname(self.file) or "."


class RenderedKustomization(NamedTuple):
    """The rendering of a kustomization, which comes first in `parts`, and all that it includes."""

    source: Source
    parts: tuple[Kustomization, ...]

    @property
    def files(self) -> Iterator[str]:
        """Every file that is evaluated by this rendering."""
        for part in self.parts:
            yield from (part.file, *part.resources, *part.patches)


def read_kustomization(file: str) -> Kustomization:
    """Return the content of the kustomization."""
    raw = as_object(next(documents_in_file(DISK, file), None))
    folder = os.path.dirname(file)
    folders, resources, remote_address = [], [], _first_address(raw)
    for field in _PART_FIELDS:
        for entry in filter(None, map(as_text, as_list(raw.get(field)))):
            path = os.path.normpath(os.path.join(folder, entry))
            if os.path.isdir(path):
                folders.append(path)
            elif os.path.isfile(path):
                resources.append(path)
            else:
                remote_address = remote_address or entry
    patches, inline = [], []
    for place, text in _patches(raw):
        name = os.path.normpath(os.path.join(folder, text))
        if "\n" in text or place[-1] == "patch":
            inline.append((place, text))
        elif os.path.isfile(name):
            patches.append(name)
    return Kustomization(
        file=file,
        folders=tuple(folders),
        resources=tuple(resources),
        patches=tuple(patches),
        inline_patches=tuple(inline),
        is_component=raw.get("kind") == "Component",
        remote_address=remote_address,
        prefix=as_text(raw.get("namePrefix")),
        suffix=as_text(raw.get("nameSuffix")),
        git_file_name=_name_of_git_file(raw, folder),
    )


def all_parts(top: Kustomization) -> tuple[Kustomization, ...]:
    """The kustomization and all that it includes, each once, the outer ones first."""
    parts = {os.path.realpath(top.folder): top}
    waiting = [top]
    for part in waiting:
        for folder in part.folders:
            real = os.path.realpath(folder)
            file = kustomization_in(folder)
            if real not in parts and file:
                parts[real] = read_kustomization(file)
                waiting.append(parts[real])
    return tuple(parts.values())


def kustomization_in(folder: str) -> str:
    """The file of the kustomization in `folder`; empty if there is none."""
    names = (os.path.normpath(os.path.join(folder, name)) for name in KUSTOMIZATION_FILES)
    return next(filter(os.path.isfile, names), "")


class RenderedKustomizations(NamedTuple):
    """The kustomizations that are rendered, each with its parts.

    - `tops`: those that no other one includes.
    - `bases`: all others but components. They are also rendered in the tops that include them.
    """

    tops: list[tuple[Kustomization, ...]]
    bases: list[tuple[Kustomization, ...]]


def choose_rendered(found: Collection[Kustomization]) -> RenderedKustomizations:
    """Return the kustomizations that are rendered.

    Of those that include each other, one is a top, so that kustomize says what is wrong.
    """
    included = {os.path.realpath(folder) for one in found for folder in one.folders}
    chosen = RenderedKustomizations([], [])
    covered: set[str] = set()
    for one in sorted(found, key=lambda one: os.path.realpath(one.folder) in included):
        real = os.path.realpath(one.folder)
        if one.is_component:
            continue
        parts = all_parts(one)
        (chosen.bases if real in covered else chosen.tops).append(parts)
        covered |= {os.path.realpath(part.folder) for part in parts}
    return chosen


# kustomize reads files outside of the folder of a kustomization only with this option. gpuward
# never gives it: the report would show what any author's kustomization reads.
_LOAD_EVERYTHING_OPTION = "--load-restrictor=LoadRestrictionsNone"
_OUTSIDE_WORDS = " is not in or below "


def render_kustomization(
    parts: tuple[Kustomization, ...], deadline: float = math.inf
) -> RenderedKustomization | UnreadableSource:
    """The rendering of the first of `parts`, or why there is none by `deadline`."""
    top = parts[0]
    for part in parts:
        if part.git_file_name:
            why = f"a kustomization whose {display(part.git_file_name)} belongs to Git"
            return UnreadableSource(part.file, f"{why}: gpuward renders nothing that reads it")
        if part.remote_address:
            why = f"a kustomization whose {part.remote_address} is not here"
            advice = "and gpuward loads nothing from elsewhere: put it into the repository"
            return UnreadableSource(part.file, f"{why}, {advice}")
    try:
        program = find_program("kubectl", "kustomize")
        verb = "kustomize" if os.path.basename(program) == "kubectl" else "build"
        name = os.path.basename(program)
        command = shlex.join([name, verb, top.folder])
        text = run_program([program, verb, os.path.abspath(top.folder)], deadline=deadline)
    except ProgramError as error:
        why = f"the kustomization cannot be rendered: {_reason_of_failure(str(error))}"
        if _OUTSIDE_WORDS in str(error):
            allowing = shlex.join([name, verb, _LOAD_EVERYTHING_OPTION, top.folder])
            why += f"; if you trust it, lint what this prints: {allowing} | gpuward lint -"
        return UnreadableSource(top.file, why)
    source = Source(command, text, is_rendering=True, folder=top.folder)
    return RenderedKustomization(source, parts)


# kubectl writes a line of its log: level and date, time, process, line of code, and then
# "command failed" err="…" or, for several lines, err=< … >.
_LOG_PREFIX_PATTERN = re.compile(r'.*?[EF]\d{4} [\d:.]+ +\d+ \w+\.go:\d+\] "command failed" err=')


def _reason_of_failure(output: str) -> str:
    """Return the failure that kubectl or kustomize report, in one line."""
    message = " ".join(output.split()).removeprefix("error: ").removeprefix("Error: ")
    if prefix := _LOG_PREFIX_PATTERN.match(message):
        quoted = message[prefix.end() :]
        message = quoted[1:-1].strip().replace('\\"', '"')
    if len(message) <= _MAX_MESSAGE_CHARACTERS:
        return message
    # kustomize says what it was doing first, and what went wrong last.
    return f"…{message[-_MAX_MESSAGE_CHARACTERS:]}"


def _patches(raw: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The path of each patch in the kustomization, and the patch or the name of its file."""
    for field in _PATCH_FIELDS:
        for index, entry in enumerate(as_list(raw.get(field))):
            if isinstance(entry, str):
                yield (field, index), entry
        for index, entry in as_objects(raw.get(field)):
            for key in ("path", "patch"):
                if text := as_text(entry.get(key)):
                    yield (field, index, key), text


def _first_address(raw: Mapping[str, Any]) -> str:
    """The first address in a field that names files."""
    return next((name for name in _named_files(raw) if _ADDRESS_PATTERN.match(name)), "")


def _name_of_git_file(raw: Mapping[str, Any], folder: str) -> str:
    """The first name of what belongs to Git, also by a link.

    CI writes credentials into `.git/config`, and the report would show what is rendered of them.
    """
    for name in _named_files(raw):
        for path in {name, name.partition("=")[2]} - {""}:  # a generator has KEY=FILE
            target = os.path.realpath(os.path.join(folder, path))
            if GIT_FOLDER in (*path.split("/"), *target.split(os.sep)):
                return name
    return ""


def _named_files(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of one line in fields that name files."""
    waiting = [raw.get(field) for field in _FILE_FIELDS]
    for value in waiting:
        if isinstance(value, str) and "\n" not in value:
            yield value
        elif isinstance(value, dict):
            waiting.extend(v for key, v in value.items() if key not in ("patch", "literals"))
        elif isinstance(value, list):
            waiting.extend(value)


_MAX_NAME_CHARACTERS = 253  # of a name in Kubernetes
_MAX_RENAMINGS = 100
# kustomize leaves the names of these as they are
_KINDS_NOT_RENAMED = ("APIService", "CustomResourceDefinition", "Namespace")


class Renaming(NamedTuple):
    """A prefix and a suffix that are put around a name."""

    prefix: str = ""
    suffix: str = ""

    def rename(self, kind: str, name: str) -> str:
        """The name of the object after it is rendered."""
        return name if kind in _KINDS_NOT_RENAMED else f"{self.prefix}{name}{self.suffix}"

    def may_result_in(self, rendered: str) -> bool:
        """Return whether an object may be called `rendered` afterwards."""
        is_long = len(rendered) > len(self.prefix) + len(self.suffix)
        return is_long and rendered.startswith(self.prefix) and rendered.endswith(self.suffix)

    def strip(self, rendered: str) -> str:
        """The name in the files of what is called `rendered` afterwards."""
        return rendered.removeprefix(self.prefix).removesuffix(self.suffix)


def renamings(parts: tuple[Kustomization, ...]) -> dict[str, list[Renaming]]:
    """Return how the first of `parts` renames the objects of each part, by the file of the part.

    A part that is included several times has several renamings. Beyond the bounds there are none:
    then the objects are not recognised in the rendering.
    """
    folders = {os.path.realpath(part.folder): part for part in parts}
    found: dict[str, list[Renaming]] = {part.file: [] for part in parts}
    waiting = [(parts[0], Renaming())]
    for part, outer in waiting:
        own = Renaming(outer.prefix + part.prefix, part.suffix + outer.suffix)
        known = found[part.file]
        is_long = len(own.prefix) + len(own.suffix) > _MAX_NAME_CHARACTERS
        if is_long or own in known or len(known) == _MAX_RENAMINGS:
            continue
        known.append(own)
        included = (folders.get(os.path.realpath(folder)) for folder in part.folders)
        waiting.extend((inner, own) for inner in included if inner)
    return found
