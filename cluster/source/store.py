"""Objects that were read once, and can be listed often."""

from __future__ import annotations

import hashlib
import json
import marshal
import tempfile
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator

from cluster.source.objects import (
    Object,
    Resource,
    ResourceNames,
    SourceError,
    without_managed_fields,
)
from rules.base.json_values import as_object, as_text
from terminal import reason_of

_IN_MEMORY = 16 << 20  # bytes of the objects; more is in a temporary file
_UNKNOWN = -1  # a position in the file


class ObjectStore:
    """Objects in the order in which they were put; an `ObjectReader`.

    They are kept as `marshal` writes them: that takes a fifth of what Python's objects take, and a
    quarter of the time of JSON. Beyond 16 MiB they are in a temporary file. Threads may list at the
    same time, but not while one puts.

    An object that names no namespace is in every one, as kubectl would put it there. Of objects of
    the same kind, namespace and name the first counts; others that differ from it go to
    `on_difference`.
    """

    is_complete = False

    def __init__(self, on_difference: Callable[[Object], object] = lambda _: None) -> None:
        self._on_difference = on_difference
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # as long as the store
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self._position = 0  # in the file: to seek where it is already writes what is buffered
        self._ends = array("Q", (0,))  # of the objects in the file, after its beginning
        self._numbers: dict[tuple[str, str], array[int]] = {}
        # Digests: names have no bound.
        self._number_by_key: dict[bytes, int] = {}

    def put(self, raw: Object) -> None:
        """Keep an object, without what API servers write about its fields. Raises SourceError."""
        metadata = as_object(raw.get("metadata"))
        kind = _group(raw), as_text(raw.get("kind"))
        namespace, name = (as_text(metadata.get(field)) for field in ("namespace", "name"))
        if "managedFields" in metadata:
            raw = {**raw, "metadata": without_managed_fields(metadata)}
        try:
            content = _packed(raw)
        except (RecursionError, ValueError):
            raise SourceError(f"{kind[1]} {name}: it is nested too deeply") from None
        number = len(self._ends) - 1
        if name:
            first = self._number_by_key.setdefault(_key(*kind, namespace, name), number)
            if first != number:
                before = self._content(first)
                # Equal objects may be written in different ways.
                if content != before and _unpacked(content) != _unpacked(before):
                    self._on_difference(raw)
                return
        with self._lock:
            try:
                self._seek(self._ends[-1])
                self._position += self._file.write(content)
            except OSError as error:
                raise SourceError(f"cannot write a temporary file: {reason_of(error)}") from error
        self._ends.append(self._ends[-1] + len(content))
        self._numbers.setdefault(kind, array("L")).append(number)

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        """The objects of `resource`: see `ObjectSource`."""
        for number in self._numbers.get((resource.group, resource.kind), ()):
            yield from self._in(namespace, number)

    def list_all(
        self,
        names: ResourceNames,  # noqa: ARG002  # all that there is, as files do
        namespace: str | None,
        on_error: Callable[[SourceError], object],  # noqa: ARG002  # nothing fails
    ) -> Iterator[Object]:
        """All objects: see `ObjectSource`."""
        for number in range(len(self._ends) - 1):
            yield from self._in(namespace, number)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object: see `ObjectReader`."""
        for home in dict.fromkeys((namespace, "")):
            key = _key(resource.group, resource.kind, home, name)
            if (number := self._number_by_key.get(key)) is not None:
                return self._object(number)
        return None

    def server_version(self) -> str:
        """Not known: see `ObjectReader`."""
        return ""

    def again(self) -> ObjectStore:
        """The store: see `ObjectReader`."""
        return self

    def _in(self, namespace: str | None, number: int) -> Iterator[Object]:
        raw = self._object(number)
        if namespace is None or as_text(as_object(raw.get("metadata")).get("namespace")) in {
            namespace,
            "",
        }:
            yield raw

    def _object(self, number: int) -> Object:
        return _unpacked(self._content(number))

    def _content(self, number: int) -> bytes:
        start, end = self._ends[number], self._ends[number + 1]
        with self._lock:
            self._seek(start)
            self._position = _UNKNOWN  # if the file cannot be read
            content = self._file.read(end - start)
            self._position = end
            return content

    def _seek(self, position: int) -> None:
        if self._position != position:
            self._file.seek(position)
            self._position = position


def _packed(raw: Object) -> bytes:
    """`raw` as bytes. RecursionError or ValueError if it is nested too deeply."""
    try:
        return marshal.dumps(raw)
    except ValueError:  # or it has a value that is not of JSON, such as a date
        return marshal.dumps(json.loads(json.dumps(raw, default=str)))


def _unpacked(content: bytes) -> Object:
    raw: Object = marshal.loads(content)  # noqa: S302  # the store wrote it
    return raw


def _key(group: str, kind: str, namespace: str, name: str) -> bytes:
    """Return a key that is unique in a cluster."""
    named = repr((group, kind, namespace, name))
    return hashlib.blake2b(named.encode(errors="surrogatepass"), digest_size=16).digest()


def _group(raw: Object) -> str:
    return as_text(raw.get("apiVersion")).rpartition("/")[0]
