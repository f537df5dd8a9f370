"""The origins of the objects of a rendered kustomization: resources and patches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from kubeyaml import Document, YamlError, read, split
from lint.rendering.origins import Origin, SourceFiles, WorkBudget
from reports.findings import LocatedFinding
from rules.base.json_values import Path, as_object, as_text
from rules.workloads.discovery import flatten_lists
from sources.manifests import File, UnparsedDocument
from sources.rendering.kustomizations import (
    Kustomization,
    Renaming,
    RenderedKustomization,
    renamings,
)

_TARGET_FIELDS = ("kind", "name", "namespace")

KindAndName: TypeAlias = tuple[str, str]


class Candidate(NamedTuple):
    """A document from which an object may be rendered.

    - `renamings`: what the kustomizations do to the names in it.
    - `prefix`: the path of the patch in `document`, if that is the kustomization itself.
    - `target`: what the kustomization says about the objects that the patch is for.
    """

    file: File
    document: Document
    value: Any
    renamings: tuple[Renaming, ...]
    prefix: Path | None = None
    target: Mapping[str, Any] | None = None


def candidates_in_file(
    name: str, files: SourceFiles, names: tuple[Renaming, ...]
) -> Iterator[Candidate]:
    """The objects in the file."""
    file = files.read(name)
    for document in file.manifests() if file else ():
        if not isinstance(document, UnparsedDocument):
            assert file is not None  # noqa: S101  # for the type checker
            yield Candidate(file, document, document.value, names)


def candidates_in_kustomization(
    part: Kustomization, files: SourceFiles, names: tuple[Renaming, ...]
) -> Iterator[Candidate]:
    """The patches that are written in a kustomization."""
    file = files.read(part.file) if part.inline_patches else None
    try:
        document = next(filter(None, map(read, split(file.source.text))), None) if file else None
        for path, text in part.inline_patches:
            for chunk in split(text):
                patch = read(chunk)
                if file and document and patch and isinstance(patch.value, dict):
                    target = _target(document.value, path)
                    yield Candidate(file, document, patch.value, names, path, target)
    except YamlError:
        return


def _target(kustomization: Any, path: Path) -> Mapping[str, Any] | None:
    """The `target` beside the patch at `path`; None if there is none."""
    entry = kustomization[path[0]][path[1]]
    target = as_object(entry).get("target") if len(path) > 2 else None  # noqa: PLR2004
    return as_object(target) if target is not None else None


def is_target(target: Mapping[str, Any] | None, rendered: tuple[str, set[str], set[str]]) -> bool:
    """Return whether a target with plain words is for the object.

    Its kind, its names and its namespaces decide. Selectors and regular expressions are not
    followed, except for `.*`, which fits everything.
    """
    kind, names, namespaces = rendered
    if target is None or not set(target) <= {*_TARGET_FIELDS, "group", "version"}:
        return False
    words = (as_text(target.get(field)) for field in _TARGET_FIELDS)
    actual = ({kind}, names, namespaces)
    return all(not w or w == ".*" or w in own for w, own in zip(words, actual, strict=True))


def rendered_kinds_and_names(candidate: Candidate) -> set[KindAndName]:
    """The kind of the candidate, and the names that it may have when it is rendered."""
    kind, name = kind_and_name(candidate.value)
    return {(kind, renaming.rename(kind, name)) for renaming in candidate.renamings}


def kind_and_name(manifest: Any) -> KindAndName:
    """The kind and the name of an object."""
    raw = as_object(manifest)
    return as_text(raw.get("kind")), as_text(as_object(raw.get("metadata")).get("name"))


def namespace_of(manifest: Any) -> str:
    """The namespace that an object names; empty if it names none."""
    return as_text(as_object(as_object(manifest).get("metadata")).get("namespace"))


# What names an item of a list, which patches and other resources may put at another index
_NAMING_FIELDS = ("name", "mountPath", "containerPath", "key")


class FieldFinder:
    """Finds fields in documents, which must live as long as this."""

    def __init__(self) -> None:
        self._indices: dict[tuple[int, str], dict[str, int]] = {}

    def resolve(self, rendered: Any, value: Any, path: Path) -> Path:
        """The part of `path`, one in `rendered`, that `value` has: with the indices of `value`."""
        found: list[str | int] = []
        for step in path:
            if isinstance(step, int):
                is_item = isinstance(rendered, list) and step < len(rendered)
                item = rendered[step] if is_item else None
                step = self._index_of(item, value, step)  # noqa: PLW2901
                rendered = item
            else:
                rendered = as_object(rendered).get(step)
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            found.append(step)
        return tuple(found)

    def _index_of(self, item: Any, items: Any, index: int) -> int:
        """The index in `items` of the item with the name of `item`; `index` if it has no name."""
        key = next((k for k in _NAMING_FIELDS if isinstance(item, Mapping) and k in item), "")
        if not key or not isinstance(items, list):
            return index
        known = self._indices.get((id(items), key))
        if known is None:
            known = self._indices[id(items), key] = {}
            for number, other in enumerate(items):
                if key in as_object(other):
                    known.setdefault(repr(other[key]), number)
        return known.get(repr(item[key]), len(items))


def is_unchanged(rendered: Any, path: Path, value: Any, found: Path) -> bool:
    """Return whether the field at `found` in `value` is unchanged on the way to `rendered`."""
    for step in path[: len(found)]:
        rendered = rendered[step]
    for step in found:
        value = value[step]
    return isinstance(rendered, dict | list) or rendered == value


class KustomizationOrigins:
    """Finds the fields of one rendering in the files that kustomize has read.

    kustomize keeps neither comments nor places, so this looks for the same field of the same
    object: patches come first, because they win.
    """

    def __init__(
        self, rendered: RenderedKustomization, files: SourceFiles, work: WorkBudget
    ) -> None:
        self._rendering = File(rendered.source)
        self._documents = [d for d in self._rendering.manifests() if isinstance(d, Document)]
        self._starts = [document.start for document in self._documents]
        self._work = work
        self._fields = FieldFinder()
        self._all_resources: list[Candidate] = []
        # By kind and name: resources by the rendered one, patches also by the one in the resource
        self._resources: dict[KindAndName, list[Candidate]] = {}
        self._patches: dict[KindAndName, dict[int, Candidate]] = {}
        self._patches_of_targets: dict[int, Candidate] = {}
        numbers = count()
        known = renamings(rendered.parts)
        for part in rendered.parts:
            names = tuple(known[part.file])
            for name in part.resources:
                self._all_resources.extend(candidates_in_file(name, files, names))
            patches = [*candidates_in_kustomization(part, files, names)]
            for name in part.patches:
                patches.extend(candidates_in_file(name, files, names))
            for patch in patches:
                self._add_patch(next(numbers), patch)
        for resource in self._all_resources:
            for each in rendered_kinds_and_names(resource):
                self._resources.setdefault(each, []).append(resource)

    def _add_patch(self, number: int, patch: Candidate) -> None:
        if patch.target is not None:
            self._patches_of_targets[number] = patch
            return
        for name in {*rendered_kinds_and_names(patch), kind_and_name(patch.value)}:
            self._patches.setdefault(name, {})[number] = patch

    def not_rendered(self) -> Iterator[tuple[str, frozenset[KindAndName]]]:
        """The file of each resource, with the objects in it that the rendering does not have.

        An overlay may delete what another kustomization makes.
        """
        rendered = {kind_and_name(document.value) for document in self._documents}
        missing: dict[str, set[KindAndName]] = {}
        for resource in self._all_resources:
            lacking = missing.setdefault(resource.file.source.name, set())
            for raw, _ in flatten_lists(as_object(resource.value), ()):
                kind, name = kind_and_name(raw)
                names = (renaming.rename(kind, name) for renaming in resource.renamings)
                if not any((kind, name) in rendered for name in names):
                    lacking.add((kind, name))
        for file, lacking in missing.items():
            yield file, frozenset(lacking)

    def find(self, located: LocatedFinding) -> Origin | None:
        """The field in a patch or a resource; else its nearest parent in the resource.

        It has no document if several resources may be the rendered one.
        """
        start = located.span.start
        index = bisect_right(self._starts, start) - 1
        if index < 0 or start > self._documents[index].end:
            return None
        rendered = self._documents[index].value
        resources = self._resources_of(rendered)
        path = located.finding.path
        best, most = None, 0
        for candidate in (*self._patches_of(rendered, resources), *resources):
            if not self._work.try_spend(1 + len(path)):
                break
            found = self._fields.resolve(rendered, candidate.value, path)
            is_same = is_unchanged(rendered, path, candidate.value, found)
            if (is_same and len(found) > most) or best is None:
                best, most = (candidate, found), len(found)
            if is_same and len(found) == len(path):
                break
        if best is None:
            return None
        candidate, found = best
        place = found if candidate.prefix is None else candidate.prefix
        span = candidate.file.span_of_path(candidate.document, place)
        document = candidate.document if len(resources) < 2 else None  # noqa: PLR2004
        return Origin(candidate.file, span, document, place)

    def _resources_of(self, rendered: Any) -> list[Candidate]:
        """The resources that may be rendered as `rendered`; those in its namespace, if any are."""
        resources = self._resources.get(kind_and_name(rendered), [])
        if not self._work.try_spend(len(resources)):
            return resources[:2]
        own = [one for one in resources if namespace_of(one.value) == namespace_of(rendered)]
        return own or resources

    def _patches_of(self, rendered: Any, resources: list[Candidate]) -> Iterator[Candidate]:
        """The patches of an object, the outer ones before, by its name before or after others."""
        kind, name = kind_and_name(rendered)
        names = {name, *(kind_and_name(resource.value)[1] for resource in resources)}
        namespaces = {"", namespace_of(rendered), *(namespace_of(one.value) for one in resources)}
        found = {n: p for each in names for n, p in self._patches.get((kind, each), {}).items()}
        if not self._work.try_spend(len(found) + len(self._patches_of_targets)):
            return
        for number, patch in self._patches_of_targets.items():
            inner = {renaming.strip(name) for renaming in patch.renamings}
            if is_target(patch.target, (kind, names | inner, namespaces)):
                found[number] = patch
        for _, patch in sorted(found.items(), key=itemgetter(0)):
            is_reached = any(renaming.may_result_in(name) for renaming in patch.renamings)
            if is_reached and (patch.target is not None or namespace_of(patch.value) in namespaces):
                yield patch
