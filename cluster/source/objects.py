"""What a source of Kubernetes objects is, for every command that looks at a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]
"""A Kubernetes object as JSON, with its `apiVersion` and `kind`."""


def without_managed_fields(metadata: Mapping[str, Any]) -> Object:
    """`metadata` without what API servers write about its fields: up to half of an object."""
    return {key: value for key, value in metadata.items() if key != "managedFields"}


class Resource(NamedTuple):
    """A resource of the Kubernetes API.

    `name` is what requests and rights call it, such as `pods`; `kind` is what its objects say.
    `versions` are tried in this order: the first that the API server serves is used.
    """

    name: str
    kind: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    is_namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


ResourceNames = Mapping[str, Sequence[str]]
"""Names of resources by their API group, such as `pods` by the empty text."""


class SourceError(Exception):
    """Objects could not be read; the message says which, why, and what to do about it."""


class DiscoveryError(SourceError):
    """It is not known which resources an API group has; without a group, which groups there are."""

    def __init__(self, what: str, why: object, group: str | None = None) -> None:
        super().__init__(f"cannot list the {what}: {why}")
        self.group = group


class ListError(SourceError):
    """A resource could not be listed, or not to its end."""

    def __init__(self, resource: Resource, where: str, why: str) -> None:
        super().__init__(f"cannot list {resource}{where}: {why}")
        self.resource = resource


class MissingRightError(ListError):
    """The account must not list a resource."""

    def __init__(self, resource: Resource, namespace: str | None) -> None:
        where = f" in namespace {namespace}" if namespace else ""
        needed = f"it needs the right to list {resource}{where or ' in all namespaces'}"
        if not resource.is_namespaced:
            needed = f"it needs the right to list {resource}"
        super().__init__(resource, where, f"the account must not; {needed}")


class NotServedError(ListError):
    """The API server does not know a resource, as when its definition is not installed."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource, "", "the API server does not serve this resource")


class ObjectSource(Protocol):
    """A cluster, or files with what is in one."""

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        """The objects of a resource, of one namespace or of all, each once.

        They come as they are read, so that no more than a part of them is in memory. Raises
        SourceError: MissingRightError and NotServedError, before the first object, say that
        nothing is known about this resource, while others may well be readable.
        """

    def list_all(
        self,
        names: ResourceNames,
        namespace: str | None,
        on_error: Callable[[SourceError], object],
    ) -> Iterator[Object]:
        """The objects of all resources of `names` that there are, in its order.

        What cannot be read is given to `on_error`, and the rest is still read. Files are read once,
        in their order, and give all that they have: they do not say what an object's resource is.
        """
