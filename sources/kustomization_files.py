"""The content of kustomizations about files: which are patches, and what the linter does not read.

Only the kustomizations in the folder of a file and above it are asked, because kustomize loads no
file from outside its folder.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from kubeyaml import YamlError, read, split
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.traits import KEY_WORDS, VARIABLE_WORDS
from rules.gpu.images import is_cuda_image
from rules.profile.context import Context
from sources import STANDARD_INPUT
from sources.containment import is_inside
from sources.sources import (
    KUSTOMIZATION_FILES,
    MANIFEST_ENDINGS,
    MAX_BYTES,
    FileTree,
    SkippedSource,
)

# What these make or change cannot be known without rendering. Fields that are not here, such as
# `namePrefix`, `namespace` and `replicas`, change nothing that gives a GPU.
_FIELDS_NEEDING_RENDERING = (
    "commonAnnotations",
    "components",
    "configurations",
    "generators",
    "helmCharts",
    "helmChartInflationGenerator",
    "replacements",
    "transformers",
    "vars",
)
# What they make holds variables, which a container may take from it.
_GENERATORS = ("configMapGenerator", "secretGenerator")


def _fields_needing_rendering(raw: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in _FIELDS_NEEDING_RENDERING if raw.get(field))
    if _has_gpu_key(raw.get("commonLabels")):
        yield "commonLabels"
    # With `fields`, labels become entries of any map, such as a nodeSelector or limits.
    labels = [entry for _, entry in as_objects(raw.get("labels"))]
    if any(entry.get("fields") or _has_gpu_key(entry.get("pairs")) for entry in labels):
        yield "labels"
    for field in ("images", "imageTags"):
        if any(_brings_gpus(entry) for _, entry in as_objects(raw.get(field))):
            yield field


def _has_gpu_key(labels: Any) -> bool:
    return any(word in str(key).lower() for key in as_object(labels) for word in KEY_WORDS)


def _brings_gpus(image: Mapping[str, Any]) -> bool:
    """Return whether `image` brings another image, or a tag that makes its image one with CUDA."""
    name, tag = as_text(image.get("name")), as_text(image.get("newTag"))
    suffix = as_text(image.get("tagSuffix"))
    return bool(as_text(image.get("newName"))) or is_cuda_image(f"{name}:{tag}{suffix}")


def _sets_gpu_variable(line: str) -> bool:
    """Return whether `line`, a `NAME=value` of a generator, names a variable about GPUs."""
    return any(word in line.partition("=")[0] for word in VARIABLE_WORDS)


_RENDER_ADVICE = "lint its folder with --render"
_NOT_RENDERED = "no rendering has it"


class KustomizationContent(NamedTuple):
    """The content of one kustomization.

    Its paths are absolute; `resource_names` are the resources as it names them.
    `inline_patch_count` counts the patches written in it; `fields` are those by which it makes or
    changes objects in other ways.
    """

    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    inline_patch_count: int = 0
    fields: tuple[str, ...] = ()


class Kustomizations:
    """The kustomizations around the files of a run, each read once.

    `paths` are those that the user names; they are empty if it is not known what is there.
    """

    def __init__(self, tree: FileTree, paths: Iterable[str] = ()) -> None:
        self._tree = tree
        names = [path for path in paths if path != "-"]
        # A glob, which is no file, says nothing about the files around those that fit it.
        is_known = all(map(os.path.lexists, names))
        self._linted_paths = tuple(map(os.path.realpath, names)) if is_known else ()
        self._patches: dict[str, frozenset[str]] = {}
        self._real_folders: dict[str, str] = {}

    def context_of(self, name: str, context: Context) -> Context:
        """`context`, which says whether the file `name` is a patch of a kustomization."""
        if name == STANDARD_INPUT:
            return context
        file = self._real_path(name)
        is_patch = file in self._patches_around(os.path.dirname(file))
        return context._replace(is_patch=True) if is_patch else context

    def _real_path(self, name: str) -> str:
        """`real_path(name)` of the tree, which asks the system about each folder again."""
        folder, base = os.path.split(name)
        real = self._real_folders.get(folder)
        if real is None:
            real = self._real_folders[folder] = self._tree.real_path(folder)
        file = os.path.join(real, base)
        return self._tree.real_path(file) if self._tree.is_link(file) else file

    def _patches_around(self, folder: str) -> frozenset[str]:
        """The patches that the kustomizations in `folder` and above it name."""
        known = self._patches.get(folder)
        if known is None:
            known = frozenset()
            above = os.path.dirname(folder)
            if above != folder and not os.path.exists(os.path.join(folder, ".git")):
                known = self._patches_around(above)
            for name in KUSTOMIZATION_FILES:
                own = self._read(os.path.join(folder, name))
                known |= frozenset(own.patches) - frozenset(own.resources)
            self._patches[folder] = known
        return known

    def skipped_files_of(self, name: str, *, renders: bool) -> Iterator[SkippedSource]:
        """Yield the files that the kustomization `name` names and the linter cannot evaluate.

        Yield none if `name` is no kustomization. `renders`: the run renders kustomizations, and not
        this one.
        """
        if os.path.basename(name) not in KUSTOMIZATION_FILES:
            return
        real = self._tree.real_path(name)
        own = self._read(real)
        reason, needs_rendering = (_NOT_RENDERED if renders else _RENDER_ADVICE), not renders
        for path in dict.fromkeys((*own.resources, *own.patches)):
            inner = os.path.relpath(path, os.path.dirname(real))
            shown = os.path.join(os.path.dirname(name), inner)
            if not self._tree.is_file(path):
                continue
            if not path.lower().endswith(MANIFEST_ENDINGS):
                why = f"{name} names it, and it does not end in .yaml or .json: name it to lint it"
                yield SkippedSource(os.path.normpath(shown), why)
            elif path in own.patches and self._is_json_patch(path):
                why = f"a JSON patch of {name}: {reason}"
                yield SkippedSource(os.path.normpath(shown), why, needs_rendering)
        if self._linted_paths:
            yield from self._resources_elsewhere(name, own, reason, needs_rendering=needs_rendering)
        if own.inline_patch_count:
            why = f"its patches that are written in it: {reason}"
            yield SkippedSource(name, why, needs_rendering)
        if own.fields:
            fields = " and ".join(filter(None, (", ".join(own.fields[:-1]), own.fields[-1])))
            why = f"it makes or changes objects by {fields}: {reason}"
            yield SkippedSource(name, why, needs_rendering)

    def _resources_elsewhere(
        self, name: str, own: KustomizationContent, reason: str, *, needs_rendering: bool
    ) -> Iterator[SkippedSource]:
        """The resources that the run does not read because of where they are."""
        for resource, path in zip(own.resource_names, own.resources, strict=True):
            if not os.path.lexists(path):
                why = f"its resource {resource} is not here: lint what kustomize builds of it"
                yield SkippedSource(name, why)
            elif not any(is_inside(path, linted) for linted in self._linted_paths):
                why = f"its resource {resource} is outside of what is linted: {reason}"
                yield SkippedSource(name, why, needs_rendering)

    def _is_json_patch(self, path: str) -> bool:
        return isinstance(next(documents_in_file(self._tree, path), None), list)

    def _read(self, path: str) -> KustomizationContent:
        if not self._tree.is_file(path):
            return KustomizationContent()
        raw = as_object(next(documents_in_file(self._tree, path), None))
        entries = [as_text(entry) for entry in as_list(raw.get("patchesStrategicMerge"))]
        inline = 0
        for field in ("patches", "patchesJson6902"):
            for _, entry in as_objects(raw.get(field)):
                entries.append(as_text(entry.get("path")))
                inline += bool(entry.get("patch"))
        inline += sum("\n" in entry for entry in entries)
        resources = _file_names(as_text(entry) for entry in as_list(raw.get("resources")))
        folder = os.path.dirname(path)
        made = (field for field in _GENERATORS if self._sets_gpu_variables(raw.get(field), folder))
        fields = sorted({*_fields_needing_rendering(raw), *made})
        return KustomizationContent(
            resources=self._paths(folder, resources),
            resource_names=resources,
            patches=self._paths(folder, entries),
            inline_patch_count=inline,
            fields=tuple(fields),
        )

    def _sets_gpu_variables(self, generators: Any, folder: str) -> bool:
        """Return whether a generator of the kustomization in `folder` sets a variable of GPUs."""
        for _, generator in as_objects(generators):
            literals = map(as_text, as_list(generator.get("literals")))
            files = (generator.get("env"), *as_list(generator.get("envs")))
            texts = map(self._text_of, self._paths(folder, map(as_text, files)))
            lines = chain(literals, *map(str.splitlines, texts))
            if any(_sets_gpu_variable(line) for line in lines):
                return True
        return False

    def _text_of(self, path: str) -> str:
        """The start of the file at `path`; empty if it cannot be read."""
        try:
            return self._tree.read(path, MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def _paths(self, folder: str, entries: Iterable[str]) -> tuple[str, ...]:
        """The absolute paths of `entries`, which may also be texts of several lines."""
        names = _file_names(entries)
        return tuple(self._tree.real_path(os.path.join(folder, name)) for name in names)


def _file_names(entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(entry for entry in entries if entry and "\n" not in entry and "\0" not in entry)


def documents_in_file(tree: FileTree, path: str) -> Iterator[Any]:
    """The values in the file at `path` of `tree`, up to what cannot be read."""
    try:
        content = tree.read(path, MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return
        for chunk in split(content.decode("utf-8")):
            document = read(chunk)
            if document is not None:
                yield document.value
    except (OSError, UnicodeDecodeError, YamlError):
        return  # if the file is to be linted, the linter reports it


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []
