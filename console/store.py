"""A copy of objects in memory: those of files, which the page reads once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from cluster.source.objects import (
    NotServedError,
    Object,
    Resource,
    ResourceNames,
    SourceError,
    without_managed_fields,
)
from rules.base.json_values import as_object, as_text


class ObjectStore:
    """Objects in memory, which is an `ObjectReader`.

    They are kept as JSON: as Python's objects they would take five times as much.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], dict[tuple[str, str], bytes]] = {}

    def put(self, raw: Object) -> None:
        """Keep an object, without what API servers write about its fields."""
        metadata = without_managed_fields(as_object(raw.get("metadata")))
        name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        kind = as_text(raw.get("apiVersion")).rpartition("/")[0], as_text(raw.get("kind"))
        content = json.dumps({**raw, "metadata": metadata}, default=str).encode()
        self._objects.setdefault(kind, {}).setdefault(name, content)

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        """The objects of `resource`: see `ObjectSource`."""
        found = self._objects.get((resource.group, resource.kind))
        if found is None:
            raise NotServedError(resource)
        return _of_namespace(found, namespace)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object: see `ObjectReader`."""
        found = self._objects.get((resource.group, resource.kind), {})
        content = found.get((namespace, name)) or found.get(("", name))
        raw: Object | None = None if content is None else json.loads(content)
        return raw

    def list_all(
        self,
        names: ResourceNames,  # noqa: ARG002  # all that there is, as files do
        namespace: str | None,
        on_error: Callable[[SourceError], object],  # noqa: ARG002  # nothing fails
    ) -> Iterator[Object]:
        """All objects: see `ObjectSource`."""
        for found in self._objects.values():
            yield from _of_namespace(found, namespace)


def _of_namespace(found: dict[tuple[str, str], bytes], namespace: str | None) -> Iterator[Object]:
    for (home, _), content in found.items():
        if namespace is None or home in {namespace, ""}:
            yield json.loads(content)
