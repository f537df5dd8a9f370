"""Which files of charts are evaluated as they are rendered."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256

from kubeyaml import Document
from lint.rendering.helm_ignore import ignored_by_helm
from lint.rendering.origins import SourceFiles
from sources.manifests import File
from sources.rendering.charts import RenderedChart
from sources.sources import Source, has_placeholder

_FOLDERS = ("templates", "charts")


class ChartFiles:
    """The files of the charts that a run has rendered.

    What helm says about the source of an object proves nothing, because a template may say it too.
    So a file without placeholders is only evaluated as rendered if a rendering has its objects: it
    has not if `.helmignore` names the file, or if the condition of a subchart is false.
    """

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._is_ignored: dict[str, Callable[[str], bool]] = {}
        self._renderings: dict[str, list[Source]] = {}
        self._objects: dict[str, set[bytes]] = {}

    def add(self, rendered: RenderedChart) -> None:
        """Remember a rendering."""
        for name in _FOLDERS:
            folder = os.path.normpath(os.path.join(rendered.folder, name))
            self._renderings.setdefault(folder, []).append(rendered.source)

    def is_ignored(self, name: str) -> bool:
        """Whether the file is a template that helm leaves out, so that nothing can evaluate it."""
        folder = self._folder_of(name)
        file = self._files.read(name) if folder else None
        if file is None or not has_placeholder(file.source.text):
            return False
        chart = os.path.dirname(folder)
        if chart not in self._is_ignored:
            self._is_ignored[chart] = ignored_by_helm(chart)
        return self._is_ignored[chart](os.path.relpath(name, chart or "."))

    def has(self, name: str) -> bool:
        """Whether the file is evaluated as it is rendered."""
        folder = self._folder_of(name)
        if not folder:
            return False
        file = self._files.read(name)
        if file is None:
            return False
        if has_placeholder(file.source.text):
            return True
        own = _objects(file)
        return not own or own <= self._rendered(folder)

    def _folder_of(self, name: str) -> str:
        """The folder of templates or charts that the file is in; empty if it is in none."""
        folder = os.path.dirname(os.path.normpath(name))
        while folder not in self._renderings:
            if folder == os.path.dirname(folder):
                return ""
            folder = os.path.dirname(folder)
        return folder

    def _rendered(self, folder: str) -> set[bytes]:
        if folder not in self._objects:
            sources = self._renderings[folder]
            self._objects[folder] = set().union(*(_objects(File(source)) for source in sources))
        return self._objects[folder]


def _objects(file: File) -> set[bytes]:
    """A digest of each object in the file."""
    documents = (each for each in file.manifests() if isinstance(each, Document))
    return {sha256(repr(each.value).encode()).digest() for each in documents}
