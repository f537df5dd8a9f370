"""Objects from files: manifests, or what `kubectl get -o json` has written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import IO

from cluster.source.objects import Object, Resource, ResourceNames, SourceError
from cluster.source.store import ObjectStore
from rules.base.json_values import as_object
from rules.workloads.discovery import flatten_lists
from sources.large_files import split_large_inputs
from sources.manifests import File, UnparsedDocument
from sources.paths import inputs
from sources.sources import (
    InputFile,
    SkippedSource,
    Source,
    StandardInput,
    UnreadableSource,
    UsageError,
)


class FileSource:
    """The objects in files: of any version, and in no order; see `ObjectStore`.

    `paths` are files, folders, globs, and `-` for standard input, of which `stdin` is the stream.
    The files are read once, for the first list.
    """

    is_complete = False

    def __init__(
        self,
        paths: Sequence[str],
        stdin: IO[bytes],
        on_difference: Callable[[Object], object] = lambda _: None,
    ) -> None:
        self._paths = paths
        self._stream = stdin
        self._on_difference = on_difference

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        """The objects of `resource`: see `ObjectSource`."""
        store, error = self._read
        yield from store.list(resource, namespace)
        if error:
            raise error

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object of this name: see `ObjectReader`."""
        store, error = self._read
        found = store.get(resource, namespace, name)
        if error and not found:
            raise error
        return found

    def server_version(self) -> str:
        """Not known: see `ObjectReader`."""
        return ""

    def again(self) -> FileSource:
        """Return a source of the files as they are now. Standard input cannot change."""
        if "-" in self._paths:
            return self
        return FileSource(self._paths, self._stream, self._on_difference)

    def list_all(
        self,
        names: ResourceNames,
        namespace: str | None,
        on_error: Callable[[SourceError], object],
    ) -> Iterator[Object]:
        """All objects: see `ObjectSource`. What comes after an error is not read."""
        store, error = self._read
        yield from store.list_all(names, namespace, on_error)
        if error:
            on_error(error)

    @cached_property
    def _read(self) -> tuple[ObjectStore, SourceError | None]:
        """The objects before the first error, and that."""
        store = ObjectStore(self._on_difference)
        try:
            for raw in self._objects():
                store.put(raw)
        except SourceError as error:
            return store, error
        return store, None

    def _objects(self) -> Iterator[Object]:
        """The objects in the files, those of Lists one by one."""
        try:
            given_by = inputs(self._paths, read_stdin=self._stream.read)
            for item in split_large_inputs(given_by, with_values=True):
                given = item.read() if isinstance(item, InputFile | StandardInput) else item
                if isinstance(given, UnreadableSource):
                    raise SourceError(f"{given.name}: {given.why}")
                if not isinstance(given, SkippedSource):
                    yield from _objects(given)
        except UsageError as error:
            raise SourceError(str(error)) from error


def _objects(source: Source) -> Iterator[Object]:
    for value in _documents(source):
        for raw, _ in flatten_lists(as_object(value), ()):
            yield {**raw}


def _documents(source: Source) -> Iterator[object]:
    if source.value is not None:
        yield source.value
        return
    if source.text.startswith("{"):  # as kubectl writes it: reading it as YAML takes much longer
        with suppress(ValueError, RecursionError):
            yield json.loads(source.text)
            return
    for document in File(source).manifests():
        if isinstance(document, UnparsedDocument):
            where = f"{source.name}:{document.line}:{document.column}"
            raise SourceError(f"{where}: {document.why}")
        yield document.value
