"""The documents from which kustomize renders objects: resources and patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from kubeyaml import Document, YamlError, read, split
from lint.rendering.origins import SourceFiles
from lint.rendering.renaming import Renaming
from rules.base.json_access import as_object, as_text
from rules.base.json_values import Path
from sources.manifests import File, UnparsedDocument
from sources.rendering.kustomizations import Kustomization

_TARGET = ("kind", "name", "namespace")

Key: TypeAlias = tuple[str, str]


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


def read_file(name: str, files: SourceFiles, names: tuple[Renaming, ...]) -> Iterator[Candidate]:
    """The objects in the file."""
    file = files.read(name)
    for document in file.manifests() if file else ():
        if not isinstance(document, UnparsedDocument):
            assert file is not None  # noqa: S101  # for the type checker
            yield Candidate(file, document, document.value, names)


def read_inline(
    part: Kustomization, files: SourceFiles, names: tuple[Renaming, ...]
) -> Iterator[Candidate]:
    """The patches that are written in a kustomization."""
    file = files.read(part.file) if part.inline else None
    try:
        document = next(filter(None, map(read, split(file.source.text))), None) if file else None
        for path, text in part.inline:
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
    """Whether a target with plain words is for the object: its kind, its names, its namespaces.

    Selectors and regular expressions are not followed, except for `.*`, which fits everything.
    """
    kind, names, namespaces = rendered
    if target is None or not set(target) <= {*_TARGET, "group", "version"}:
        return False
    words = (as_text(target.get(field)) for field in _TARGET)
    actual = ({kind}, names, namespaces)
    return all(not w or w == ".*" or w in own for w, own in zip(words, actual, strict=True))


def rendered_keys(candidate: Candidate) -> set[Key]:
    """The kind of the candidate, and the names that it may have when it is rendered."""
    kind, name = key(candidate.value)
    return {(kind, renaming.rename(kind, name)) for renaming in candidate.renamings}


def key(manifest: Any) -> Key:
    """The kind and the name of an object."""
    raw = as_object(manifest)
    return as_text(raw.get("kind")), as_text(as_object(raw.get("metadata")).get("name"))


def namespace(manifest: Any) -> str:
    """The namespace that an object names; empty if it names none."""
    return as_text(as_object(as_object(manifest).get("metadata")).get("namespace"))
