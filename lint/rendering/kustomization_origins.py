"""Where the objects of a rendered kustomization are from: resources and patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kubeyaml import Document, YamlError, read, split
from lint.findings import LocatedFinding
from lint.manifests import File, UnparsedDocument
from lint.rendering.kustomizations import Kustomization, RenderedKustomization
from lint.rendering.origins import Origin, SourceFiles
from rules.base.json_access import as_object, as_text
from rules.base.json_patch import Path

# What names an item of a list, which patches and other resources may put at another index
_NAMES = ("name", "mountPath", "containerPath", "key")


class _Candidate(NamedTuple):
    """A document from which an object may be rendered.

    `prefix` is the path of the patch in `document`, if that is the kustomization itself.
    """

    file: File
    document: Document
    value: Any
    prefix: Path | None = None


class KustomizationOrigins:
    """Finds the fields of one rendering in the files that kustomize has read.

    kustomize keeps neither comments nor places, so this looks for the same field of the same
    object: patches come first, because they win.
    """

    def __init__(self, rendered: RenderedKustomization, files: SourceFiles) -> None:
        self._rendering = File(rendered.source)
        self._documents = [d for d in self._rendering.manifests() if isinstance(d, Document)]
        self._candidates = list(_candidates(rendered.parts, files))

    def find(self, located: LocatedFinding) -> Origin | None:
        """The field in a patch or a resource; else its nearest parent in the resource."""
        start = located.span.start
        document = next((d for d in self._documents if d.start <= start <= d.end), None)
        if document is None:
            return None
        path = located.finding.path
        best, most = None, 0
        for candidate in self._candidates:
            if not _may_be(candidate, document.value):
                continue
            found = _resolve(document.value, candidate.value, path)
            is_exact = _is_same(document.value, path, candidate.value, found)
            if (is_exact and len(found) > most) or best is None:
                best, most = (candidate, found, is_exact), len(found)
            if is_exact and len(found) == len(path):
                break
        if best is None:
            return None
        candidate, found, is_exact = best
        place = found if candidate.prefix is None else candidate.prefix
        span = candidate.file.locate(candidate.document, place)
        is_exact = is_exact and len(found) == len(path)
        return Origin(candidate.file, span, is_exact, candidate.document, place)


def _candidates(parts: tuple[Kustomization, ...], files: SourceFiles) -> Iterator[_Candidate]:
    """Patches first, the outer ones before; then resources, those with longer names first."""
    for part in parts:
        yield from _inline(part, files)
        for name in part.patches:
            yield from _read(name, files)
    resources = [c for part in parts for name in part.resources for c in _read(name, files)]
    yield from sorted(resources, key=lambda c: -len(_name(c.value)))


def _read(name: str, files: SourceFiles) -> Iterator[_Candidate]:
    file = files.read(name)
    for document in file.manifests() if file else ():
        if not isinstance(document, UnparsedDocument):
            assert file is not None  # noqa: S101  # for the type checker
            yield _Candidate(file, document, document.value)


def _inline(part: Kustomization, files: SourceFiles) -> Iterator[_Candidate]:
    """The patches that are written in a kustomization."""
    file = files.read(part.file) if part.inline else None
    try:
        document = next(filter(None, map(read, split(file.source.text))), None) if file else None
        for path, text in part.inline:
            for chunk in split(text):
                patch = read(chunk)
                if file and document and patch:
                    yield _Candidate(file, document, patch.value, path)
    except YamlError:
        return


def _may_be(candidate: _Candidate, rendered: Any) -> bool:
    """Whether `candidate` and `rendered` may be the same object, which may have another name."""
    if as_object(candidate.value).get("kind") != as_object(rendered).get("kind"):
        return False
    is_patch_of_target = candidate.prefix is not None and candidate.prefix[-1] == "patch"
    return is_patch_of_target or _name(candidate.value) in _name(rendered)


def _name(manifest: Any) -> str:
    return as_text(as_object(as_object(manifest).get("metadata")).get("name"))


def _resolve(rendered: Any, value: Any, path: Path) -> Path:
    """The part of `path`, a path in `rendered`, that `value` has: with the indices of `value`."""
    found: list[str | int] = []
    for step in path:
        if isinstance(step, int):
            item = rendered[step] if isinstance(rendered, list) and step < len(rendered) else None
            step = _index_of(item, value, step)  # noqa: PLW2901
            rendered = item
        else:
            rendered = as_object(rendered).get(step)
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            break
        found.append(step)
    return tuple(found)


def _index_of(item: Any, items: Any, index: int) -> int:
    """The index in `items` of the item with the name of `item`; `index` if it has no name."""
    key = next((key for key in _NAMES if isinstance(item, Mapping) and key in item), "")
    if not key or not isinstance(items, list):
        return index
    same = (i for i, other in enumerate(items) if as_object(other).get(key) == item[key])
    return next(same, len(items))


def _is_same(rendered: Any, path: Path, value: Any, found: Path) -> bool:
    """Whether the field at `found` in `value` has not been changed on the way to `rendered`."""
    for step in path[: len(found)]:
        rendered = rendered[step]
    for step in found:
        value = value[step]
    return isinstance(rendered, dict | list) or rendered == value
