"""Objects from an API server, page by page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote, urlencode

from cluster.api.connection import Connection
from cluster.api.errors import ExpiredError, ForbiddenError, MissingError, TooLargeError
from cluster.protocols import ClusterError
from cluster.source.objects import (
    DiscoveryError,
    ListError,
    MissingRightError,
    NotServedError,
    Object,
    Resource,
    ResourceNames,
    SourceError,
)
from cluster_commands.source.discovery import served_resources
from cluster_commands.source.retries import RetryingConnection

_PAGE = 250  # objects: of pods about five megabytes
_MAX_RESTARTS = 5  # of a list, without one more page


class ApiServerSource:
    """The objects of a cluster, as its API server lists them; see `RetryingConnection`."""

    def __init__(
        self, connection: Connection, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._requests = RetryingConnection(connection, wait)

    def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = ""
    ) -> Iterator[Object]:
        """The objects of `resource`: see `ObjectSource`. `labels` is a label selector."""
        has_begun = False
        for version in resource.versions:
            try:
                for item in self._list(resource, version, namespace, labels):
                    has_begun = True
                    yield item
            except ClusterError as error:
                # Replicas of the API server may differ while it is upgraded: another version would
                # list again what this one has listed.
                if isinstance(error, MissingError) and not has_begun:
                    continue
                if isinstance(error, ForbiddenError) and not has_begun:
                    raise MissingRightError(resource, namespace) from error
                raise ListError(resource, "", str(error)) from error
            return
        raise NotServedError(resource)

    def list_all(
        self,
        names: ResourceNames,
        namespace: str | None,
        on_error: Callable[[SourceError], object],
    ) -> Iterator[Object]:
        """The objects of all these resources: see `ObjectSource`."""
        try:
            resources = [*served_resources(self._get, names, on_error)]
        except ClusterError as error:
            on_error(DiscoveryError("API groups", error))
            return
        for resource in resources:
            home = namespace if resource.is_namespaced else None
            try:
                yield from self.list(resource, home)
            except SourceError as error:
                on_error(error)

    def get_text(self, path: str) -> str:
        """The text at a path of the API server, such as its metrics. Raises ClusterError."""
        return self._requests.get_text(path)

    def _list(
        self, resource: Resource, version: str, namespace: str | None, labels: str
    ) -> Iterator[Object]:
        """The objects in the order of their keys, in which API servers keep them."""
        group = f"apis/{resource.group}/{version}" if resource.group else f"api/{version}"
        scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        selector = f"&{urlencode({'labelSelector': labels})}" if labels else ""
        path = f"/{group}/{scope}{resource.name}"
        pages = _Pages(lambda query: self._get(f"{path}?{query}{selector}"))
        last = ""
        while (page := pages.next()) is not None:
            for item in page.objects:
                key = _key(item)
                if key > last or not page.may_repeat:
                    last = max(key, last)
                    yield {"apiVersion": page.api_version, "kind": resource.kind, **item}

    def _get(self, path: str) -> Object:
        return self._requests.request("GET", path)


class _Page(NamedTuple):
    api_version: str
    objects: list[Object]
    may_repeat: bool


class _Pages:
    """The pages of one list; `get` requests one, by its query.

    The API server forgets the state of a list after some minutes. It then says how to go on with
    the present state; if it does not, the list begins again, and its pages may repeat objects.
    """

    def __init__(self, get: Callable[[str], Object]) -> None:
        self._get = get
        self._limit = _PAGE
        self._token: str | None = ""
        self._may_repeat = False
        self._restarts = 0

    def next(self) -> _Page | None:
        """The next page; None after the last."""
        while self._token is not None:
            query = {"limit": str(self._limit)} | ({"continue": self._token} if self._token else {})
            try:
                answer = self._get(urlencode(query))
            except ExpiredError as error:
                if self._restarts == _MAX_RESTARTS:
                    raise
                self._restarts += 1
                self._token = error.continue_token
                self._may_repeat |= not self._token
                continue
            except TooLargeError:
                if self._limit == 1:
                    raise
                self._limit = max(1, self._limit // 4)
                continue
            token = (answer.get("metadata") or {}).get("continue")
            self._token = token or None
            version = str(answer.get("apiVersion", ""))
            if not self._may_repeat:
                self._restarts = 0
            return _Page(version, answer.get("items") or [], self._may_repeat)
        return None


def _key(item: Object) -> str:
    """What API servers order the objects of a list by."""
    metadata = item.get("metadata") or {}
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    return f"{namespace}/{name}" if namespace else str(name)
