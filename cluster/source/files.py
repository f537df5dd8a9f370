"""Objects from files: manifests, or what `kubectl get -o json` has written."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import IO

from cluster.source.objects import Object, Resource, ResourceNames, SourceError
from rules.base.json_values import as_object, as_text
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

_BLOCK = 1 << 20
# Half the time that `json.dumps` takes.
_encode = json.JSONEncoder(sort_keys=True, check_circular=False, default=str).encode
_IN_MEMORY = 16 << 20  # bytes of standard input; more is in a temporary file


class FileSource:
    """The objects in files: of any version, and in no order.

    `paths` are files, folders, globs, and `-` for standard input, of which `stdin` is the stream.
    The files are read again for each list, so that they are never in memory as a whole. An object
    that names no namespace is in every one, as kubectl would put it there. Of objects of the same
    kind, namespace and name the first counts; others that differ from it go to `on_difference`.
    """

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
        of_kind = (
            raw
            for raw in self._objects_in(namespace)
            if (_group(raw), as_text(raw.get("kind"))) == (resource.group, resource.kind)
        )
        return self._each_once(of_kind)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object of this name: see `ObjectReader`."""
        for raw in self.list(resource, namespace):
            if as_text(as_object(raw.get("metadata")).get("name")) == name:
                return raw
        return None

    def server_version(self) -> str:
        """Not known: see `ObjectReader`."""
        return ""

    def list_all(
        self,
        names: ResourceNames,  # noqa: ARG002  # files give all that they have
        namespace: str | None,
        on_error: Callable[[SourceError], object],
    ) -> Iterator[Object]:
        """All objects: see `ObjectSource`. What comes after an error is not read."""
        try:
            yield from self._each_once(self._objects_in(namespace))
        except SourceError as error:
            on_error(error)

    def _objects_in(self, namespace: str | None) -> Iterator[Object]:
        """The objects in the files, those of Lists one by one."""
        for raw in self._of_all_namespaces():
            home = as_text(as_object(raw.get("metadata")).get("namespace"))
            if namespace is None or home in {namespace, ""}:
                yield raw

    def _each_once(self, items: Iterable[Object]) -> Iterator[Object]:
        first: dict[bytes, bytes] = {}  # digests: names and objects have no bound
        for raw in items:
            if key := _key(raw):
                content = _digest(_canonical_text(raw))
                if (known := first.setdefault(key, content)) is not content:
                    if known != content:
                        self._on_difference(raw)
                    continue
            yield raw

    def _of_all_namespaces(self) -> Iterator[Object]:
        try:
            for item in split_large_inputs(inputs(self._paths, read_stdin=self._read_stdin())):
                given = item.read() if isinstance(item, InputFile | StandardInput) else item
                if isinstance(given, UnreadableSource):
                    raise SourceError(f"{given.name}: {given.why}")
                if not isinstance(given, SkippedSource):
                    yield from _objects(given)
        except UsageError as error:
            raise SourceError(str(error)) from error

    def _read_stdin(self) -> Callable[[int], bytes]:
        """Reads standard input from its beginning."""
        self._stdin.seek(0)
        return self._stdin.read

    @cached_property
    def _stdin(self) -> IO[bytes]:
        kept = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # as long as the source
        weakref.finalize(self, kept.close)
        if "-" in self._paths:
            shutil.copyfileobj(self._stream, kept, _BLOCK)
        return kept


def _key(raw: Object) -> bytes:
    """Return a key that is unique in a cluster; empty for an object without a name."""
    metadata = as_object(raw.get("metadata"))
    namespace, name = (as_text(metadata.get(field)) for field in ("namespace", "name"))
    named = [_group(raw), as_text(raw.get("kind")), namespace, name]
    return _digest(json.dumps(named)) if name else b""


def _canonical_text(raw: Object) -> str:
    """Return a text that is the same for equal objects.

    Some objects of YAML are none of JSON.
    """
    try:
        return _encode(raw)
    except TypeError:  # keys of several types have no order
        return repr(raw)


def _group(raw: Object) -> str:
    return as_text(raw.get("apiVersion")).rpartition("/")[0]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _objects(source: Source) -> Iterator[Object]:
    for value in _documents(source):
        for raw, _ in flatten_lists(as_object(value), ()):
            yield {**raw}


def _documents(source: Source) -> Iterator[object]:
    if source.text.startswith("{"):  # as kubectl writes it: reading it as YAML takes much longer
        with suppress(ValueError, RecursionError):
            yield json.loads(source.text)
            return
    for document in File(source).manifests():
        if isinstance(document, UnparsedDocument):
            where = f"{source.name}:{document.line}:{document.column}"
            raise SourceError(f"{where}: {document.why}")
        yield document.value
