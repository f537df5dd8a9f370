"""Follow the objects of a resource: list them once, then watch what changes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from cluster.api.connection import Connection
from cluster.api.errors import ClusterError, ExpiredError, ForbiddenError, MissingError
from cluster.source.api_server import MAX_ANSWER_BYTES, Pages
from cluster.source.objects import ListError, MissingRightError, Object, Resource
from rules.base.json_values import as_object, as_text

_PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)  # seconds after an error, and after the next …
_NOT_SERVED_PAUSE = 60.0

Key = tuple[str, str]
"""Namespace and name of an object."""


class Follower(Protocol):
    """A listener for the objects of a resource, which one thread for each resource calls."""

    def put(self, resource: Resource, raw: Object) -> None:
        """An object is new, or has changed, or is listed again."""

    def drop(self, resource: Resource, key: Key) -> None:
        """An object is gone."""

    def listed(self, resource: Resource) -> None:
        """All objects that there are have been put; also if the API server knows no such kind."""

    def failed(self, resource: Resource, error: ListError) -> None:
        """The objects cannot be read at the moment."""


class Following:
    """Follows one resource until `stop` is set: `run` is for a thread of its own.

    After an error it tries again, for ever: a cluster may be away for a while.
    """

    def __init__(
        self, connection: Connection, resource: Resource, follower: Follower, stop: threading.Event
    ) -> None:
        self._connection, self._resource = connection, resource
        self._follower, self._stop = follower, stop
        self._known: set[Key] = set()
        self._path = ""

    def run(self) -> None:
        """List and watch, again and again."""
        failures = 0
        while not self._stop.is_set():
            try:
                version = self._list()
                failures = 0
                while not self._stop.is_set():
                    version = self._watch(version)
            except ExpiredError:
                continue  # what has changed since is forgotten: the list says it
            except MissingError:
                self._follower.listed(self._resource)
                self._stop.wait(_NOT_SERVED_PAUSE)
            except ClusterError as error:
                self._follower.failed(self._resource, self._error(error))
                self._stop.wait(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    def _error(self, error: ClusterError) -> ListError:
        if isinstance(error, ForbiddenError):
            return MissingRightError(self._resource, None)
        return ListError(self._resource, "", str(error))

    def _list(self) -> str:
        """Read all objects; the state of the cluster from which to watch."""
        for number, version in enumerate(self._resource.versions, 1):
            group = self._resource.group
            base = f"/apis/{group}/{version}" if group else f"/api/{version}"
            self._path = f"{base}/{self._resource.name}"
            try:
                return self._read_pages()
            except MissingError:
                if number == len(self._resource.versions):
                    raise
        raise AssertionError("a resource has a version")

    def _read_pages(self) -> str:
        pages = Pages(
            lambda query: self._connection.request(
                "GET", f"{self._path}?{query}", max_bytes=MAX_ANSWER_BYTES
            )
        )
        found: set[Key] = set()
        first = ""
        while (page := pages.next()) is not None:
            # A list that was begun again shows later states: events since the first are no harm.
            first = first or page.resource_version
            for item in page.objects:
                raw = {"apiVersion": page.api_version, "kind": self._resource.kind, **item}
                found.add(_key(raw))
                self._follower.put(self._resource, raw)
            del page  # before the next is read
        for key in self._known - found:
            self._follower.drop(self._resource, key)
        self._known = found
        self._follower.listed(self._resource)
        return first

    def _watch(self, version: str) -> str:
        """Pass events on until the API server ends the watch; the state that they have led to."""
        for event in self._connection.events(
            f"{self._path}?{urlencode({'resourceVersion': version})}"
        ):
            if self._stop.is_set():
                break
            raw = as_object(event.get("object"))
            metadata = as_object(raw.get("metadata"))
            version = as_text(metadata.get("resourceVersion")) or version
            key = _key(raw)
            if event.get("type") == "DELETED":
                self._known.discard(key)
                self._follower.drop(self._resource, key)
            elif event.get("type") in {"ADDED", "MODIFIED"}:
                self._known.add(key)
                self._follower.put(self._resource, {**raw})
        return version


def _key(raw: Mapping[str, Any]) -> Key:
    metadata = as_object(raw.get("metadata"))
    return as_text(metadata.get("namespace")), as_text(metadata.get("name"))
