"""Where the objects of a rendered kustomization are from: resources and patches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import count
from operator import itemgetter
from typing import Any

from kubeyaml import Document
from lint.rendering.candidates import (
    Candidate,
    Key,
    is_target,
    key,
    namespace,
    read_file,
    read_inline,
    rendered_keys,
)
from lint.rendering.fields import Fields, is_same
from lint.rendering.origins import Origin, SourceFiles, Work
from lint.rendering.renaming import renamings
from reports.findings import LocatedFinding
from rules.base.json_access import as_object
from rules.workloads.lists import flatten_lists
from sources.manifests import File
from sources.rendering.kustomizations import RenderedKustomization


class KustomizationOrigins:
    """Finds the fields of one rendering in the files that kustomize has read.

    kustomize keeps neither comments nor places, so this looks for the same field of the same
    object: patches come first, because they win.
    """

    def __init__(self, rendered: RenderedKustomization, files: SourceFiles, work: Work) -> None:
        self._rendering = File(rendered.source)
        self._documents = [d for d in self._rendering.manifests() if isinstance(d, Document)]
        self._starts = [document.start for document in self._documents]
        self._work = work
        self._fields = Fields()
        self._all_resources: list[Candidate] = []
        # By kind and name: resources by the rendered one, patches also by the one in the resource
        self._resources: dict[Key, list[Candidate]] = {}
        self._patches: dict[Key, dict[int, Candidate]] = {}
        self._patches_of_targets: dict[int, Candidate] = {}
        numbers = count()
        known = renamings(rendered.parts)
        for part in rendered.parts:
            names = tuple(known[part.file])
            for name in part.resources:
                self._all_resources.extend(read_file(name, files, names))
            patches = [*read_inline(part, files, names)]
            for name in part.patches:
                patches.extend(read_file(name, files, names))
            for patch in patches:
                self._add_patch(next(numbers), patch)
        for resource in self._all_resources:
            for each in rendered_keys(resource):
                self._resources.setdefault(each, []).append(resource)

    def _add_patch(self, number: int, patch: Candidate) -> None:
        if patch.target is not None:
            self._patches_of_targets[number] = patch
            return
        for name in {*rendered_keys(patch), key(patch.value)}:
            self._patches.setdefault(name, {})[number] = patch

    def not_rendered(self) -> Iterator[tuple[str, frozenset[Key]]]:
        """The file of each resource, with the objects in it that the rendering does not have.

        An overlay may delete what another kustomization makes.
        """
        rendered = {key(document.value) for document in self._documents}
        missing: dict[str, set[Key]] = {}
        for resource in self._all_resources:
            lacking = missing.setdefault(resource.file.source.name, set())
            for raw, _ in flatten_lists(as_object(resource.value), ()):
                kind, name = key(raw)
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
            if not self._work.spend(1 + len(path)):
                break
            found = self._fields.resolve(rendered, candidate.value, path)
            is_unchanged = is_same(rendered, path, candidate.value, found)
            if (is_unchanged and len(found) > most) or best is None:
                best, most = (candidate, found), len(found)
            if is_unchanged and len(found) == len(path):
                break
        if best is None:
            return None
        candidate, found = best
        place = found if candidate.prefix is None else candidate.prefix
        span = candidate.file.locate(candidate.document, place)
        document = candidate.document if len(resources) < 2 else None  # noqa: PLR2004
        return Origin(candidate.file, span, document, place)

    def _resources_of(self, rendered: Any) -> list[Candidate]:
        """The resources that may be rendered as `rendered`; those in its namespace, if any are."""
        resources = self._resources.get(key(rendered), [])
        if not self._work.spend(len(resources)):
            return resources[:2]
        own = [one for one in resources if namespace(one.value) == namespace(rendered)]
        return own or resources

    def _patches_of(self, rendered: Any, resources: list[Candidate]) -> Iterator[Candidate]:
        """The patches of an object, the outer ones before, by its name before or after others."""
        kind, name = key(rendered)
        names = {name, *(key(resource.value)[1] for resource in resources)}
        namespaces = {"", namespace(rendered), *(namespace(one.value) for one in resources)}
        found = {n: p for each in names for n, p in self._patches.get((kind, each), {}).items()}
        if not self._work.spend(len(found) + len(self._patches_of_targets)):
            return
        for number, patch in self._patches_of_targets.items():
            inner = {renaming.strip(name) for renaming in patch.renamings}
            if is_target(patch.target, (kind, names | inner, namespaces)):
                found[number] = patch
        for _, patch in sorted(found.items(), key=itemgetter(0)):
            is_reached = any(renaming.may_give(name) for renaming in patch.renamings)
            if is_reached and (patch.target is not None or namespace(patch.value) in namespaces):
                yield patch
