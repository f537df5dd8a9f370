"""Objects from an API server: which resources it serves, with retries, and page by page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from cluster.api.connection import Connection
from cluster.api.errors import (
    ClusterError,
    ExpiredError,
    ForbiddenError,
    MissingError,
    TooLargeError,
    UnavailableError,
    UnreachableError,
)
from cluster.source.objects import (
    SECRETS,
    DiscoveryError,
    GetError,
    ListError,
    MissingRightError,
    NotServedError,
    Object,
    Resource,
    ResourceNames,
    SourceError,
)
from rules.base.json_values import as_object, as_objects, as_text

# The resources that an API server serves, and their versions.


def served_resources(
    get: Callable[[str], Object],
    names: ResourceNames,
    on_error: Callable[[DiscoveryError], object],
) -> Iterator[Resource]:
    """The resources of `names` that there are, each in one version.

    That is the version which its group prefers, or else the first that has the resource: a group
    prefers one version for all, such as v1beta1, and may have a kind only in v1alpha1. `get` sends
    a request. Raises ClusterError if the groups are not known; other errors go to `on_error`.
    """
    groups = {
        as_text(group.get("name")): group for _, group in as_objects(get("/apis").get("groups"))
    }
    for group, wanted in names.items():
        found: dict[str, Resource] = {}
        for version in _versions(groups.get(group, {})) if group else ("v1",):
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                listed = get(path).get("resources")
            except ClusterError as error:
                on_error(DiscoveryError(f"resources of {path}", error, group))
                break
            for _, served in as_objects(listed):
                name, kind = as_text(served.get("name")), as_text(served.get("kind"))
                is_namespaced = served.get("namespaced") is True
                found.setdefault(name, Resource(name, kind, group, (version,), is_namespaced))
            if found.keys() >= {*wanted}:
                break
        yield from (found[name] for name in wanted if name in found)


def _versions(group: Mapping[str, Any]) -> list[str]:
    """The versions of an API group, the one that it prefers first."""
    versions = [version for _, version in as_objects(group.get("versions"))]
    listed = [as_object(group.get("preferredVersion")), *versions]
    return [*dict.fromkeys(name for each in listed if (name := as_text(each.get("version"))))]


# Requests that are retried if the API server does not answer, or says that it is too busy.

_ATTEMPTS = 6  # of a request, so that an API server may restart meanwhile
_MAX_WAIT = 60.0  # seconds
# Of an answer; one object has at most about three MiB. Labels, of which a tenant may write a
# megabyte into each object, take thirteen times as much memory as in JSON.
MAX_ANSWER_BYTES = 8 << 20
_MAX_TEXT_BYTES = 32 << 20


class RetryingConnection:
    """Sends requests to an API server that may be sent twice, as they have the same effect then.

    A request that the API server does not answer, or answers with 429 or 5xx, is sent again: after
    as many seconds as the API server asks for, at most a minute, else after 1, 2, 4, … seconds.
    If the very first request reaches no server, the address is wrong, and there is no second one.
    `wait` waits so many seconds. Errors of the kind `gives_up_on` are raised at once.
    """

    gives_up_on: type[UnavailableError] | tuple[()] = ()

    def __init__(
        self, connection: Connection, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._connection = connection
        self._wait = wait
        self._has_answered = False

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        sent: str = "application/json",
        *,
        accept: str = "application/json",
    ) -> Object:
        """The JSON response. Raises ClusterError, as those of `cluster.api.errors`."""
        for attempt in range(_ATTEMPTS):
            try:
                answer = self._connection.request(
                    method, path, body, sent, MAX_ANSWER_BYTES, accept=accept
                )
                self._has_answered = True
                return answer  # noqa: TRY300  # the loop goes on after an error
            except UnavailableError as error:
                is_first = isinstance(error, UnreachableError) and not self._has_answered
                is_final = is_first or isinstance(error, self.gives_up_on)
                if is_final or attempt == _ATTEMPTS - 1:
                    raise
                seconds = error.retry_after if error.retry_after is not None else 2.0**attempt
            self._wait(min(seconds, _MAX_WAIT))
        raise AssertionError("unreachable")

    def get_text(self, path: str) -> str:
        """The text at a path of the API server; asked for once. Raises ClusterError."""
        return self._connection.get_text(path, _MAX_TEXT_BYTES)


_PAGE = 250  # objects: of pods about five megabytes
_MAX_PAGES_BEFORE_GROWTH = 8  # at one limit
_MAX_RESTARTS = 5  # of a list, without one more page
# Keys of certificates stay where they are.
_ONLY_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class ApiServerSource:
    """The objects of a cluster, as its API server lists them; see `RetryingConnection`."""

    is_complete = True

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
                    if not self._serves(resource, version):
                        continue
                    raise MissingRightError(resource, namespace) from error
                raise ListError(resource, "", str(error)) from error
            return
        raise NotServedError(resource)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object: see `ObjectReader`."""
        version = resource.versions[0]
        group = f"apis/{resource.group}/{version}" if resource.group else f"api/{version}"
        scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        place = f"{scope}{resource.name}/{quote(name, safe='')}"
        accept = _ONLY_METADATA if resource == SECRETS else "application/json"
        try:
            return self._requests.request("GET", f"/{group}/{place}", accept=accept)
        except MissingError:
            return None
        except ForbiddenError as error:
            where = f" in namespace {namespace}" if namespace else ""
            right = f"get {resource}{where}"
            why = f"the account may not; it needs the right to {right}"
            raise GetError(f"{resource.name}/{name}", why, right) from error
        except ClusterError as error:
            raise GetError(f"{resource.name}/{name}", str(error)) from error

    def again(self) -> ApiServerSource:
        """The source itself, as each list is a new request: see `ObjectReader`."""
        return self

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

    def server_version(self) -> str:
        """The version of the API server: see `ObjectReader`."""
        try:
            return as_text(as_object(json.loads(self.get_text("/version"))).get("gitVersion"))
        except (ClusterError, ValueError, RecursionError):
            return ""

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
        pages = Pages(lambda query: self._get(f"{path}?{query}{selector}"))
        last = ""
        while (page := pages.next()) is not None:
            for item in page.objects:
                key = _list_key(item)
                if key > last or not page.may_repeat:
                    last = max(key, last)
                    yield {"apiVersion": page.api_version, "kind": resource.kind, **item}
            del page  # before the next is read

    def _serves(self, resource: Resource, version: str) -> bool:
        """Return whether there is such a resource, as far as is known.

        What an account may not list it may not list either where there is no such thing.
        """
        if not resource.group:
            return True
        try:
            served = self._get(f"/apis/{resource.group}/{version}").get("resources")
        except MissingError:
            return False
        except ClusterError:
            return True
        return any(found.get("name") == resource.name for _, found in as_objects(served))

    def _get(self, path: str) -> Object:
        return self._requests.request("GET", path)


class Page(NamedTuple):
    """Objects of a list; `resource_version` is the state of the cluster that it shows."""

    api_version: str
    objects: list[Object]
    may_repeat: bool
    resource_version: str


class Pages:
    """The pages of one list; `get` requests one, by its query.

    Pages become smaller where objects are large, and grow again after them: a few large objects of
    one tenant must not make the rest of the list slow. Where all objects are large, a page that has
    grown is too large, and was sent for nothing. After each such page, growth waits for more pages.

    The API server forgets the state of a list after some minutes. It then says how to go on with
    the present state; if it does not, the list begins again, and its pages may repeat objects.
    """

    def __init__(self, get: Callable[[str], Object]) -> None:
        self._get = get
        self._limit = _PAGE
        self._has_grown = False
        self._pages_at_limit, self._pages_before_growth = 0, 1
        self._token: str | None = ""
        self._may_repeat = False
        self._restarts = 0

    def next(self) -> Page | None:
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
                self._shrink()
                continue
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue")
            self._token = token or None
            self._grow()
            version = str(answer.get("apiVersion", ""))
            if not self._may_repeat:
                self._restarts = 0
            state = str(metadata.get("resourceVersion", ""))
            return Page(version, answer.get("items") or [], self._may_repeat, state)
        return None

    def _shrink(self) -> None:
        if self._has_grown:
            longer = self._pages_before_growth * 2
            self._pages_before_growth = min(longer, _MAX_PAGES_BEFORE_GROWTH)
        self._limit = max(1, self._limit // 4)
        self._has_grown, self._pages_at_limit = False, 0

    def _grow(self) -> None:
        self._pages_at_limit += 1
        if self._limit < _PAGE and self._pages_at_limit >= self._pages_before_growth:
            self._limit = min(_PAGE, self._limit * 2)
            self._has_grown, self._pages_at_limit = True, 0


def _list_key(item: Object) -> str:
    """Return the key by which API servers order the objects of a list."""
    metadata = item.get("metadata") or {}
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    return f"{namespace}/{name}" if namespace else str(name)
