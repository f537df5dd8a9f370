"""A cluster as it was read, each resource once; and what could not be read, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from cluster.accounting.account import DEFAULT_POD_SIZE, Account, CountedPod, PodSize
from cluster.accounting.usage import Usage
from cluster.source.objects import (
    CLAIMS,
    NODES,
    PODS,
    SLICES,
    MissingRightError,
    NotServedError,
    Object,
    ObjectReader,
    Resource,
    SourceError,
    name_of,
    without_images,
    without_managed_fields,
)
from rules.base.json_values import as_object
from rules.profile.profile import Profile

OnPod: TypeAlias = Callable[[Object, CountedPod | None], object]
"""Takes a pod, and what counts of it; None if it has terminated."""
_Scope: TypeAlias = tuple[Resource, str | None]


class NotInFilesError(SourceError):
    """The files have no object of a resource, which a cluster may well have."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(f"no {resource.kind} in the files")


def _ignore(*_: object) -> None:
    return None


class Snapshot:
    """The objects of a cluster, or of files with what is in one.

    Each resource is read once, when it is first asked for, and stays as it was. Pods, of which
    there are many, are not kept: `count` reads them.

    `source` reads single objects too. `profile` says which resources are GPUs. With `keep_going`, a
    resource that cannot be listed for whatever reason is one of which nothing is known; without it,
    this raises SourceError unless the account lacks the right or no such resource is served.
    """

    def __init__(self, source: ObjectReader, profile: Profile, *, keep_going: bool = False) -> None:
        self.source, self._profile = source, profile
        self._keep_going = keep_going
        self._kept: dict[_Scope, list[Object]] = {}
        self._errors: dict[_Scope, SourceError] = {}

    # Objects.

    def objects(self, resource: Resource, namespace: str | None = None) -> list[Object]:
        """The objects of a resource, of one namespace or of all; none if they cannot be read.

        They are without what API servers write about their fields, and nodes without their images.
        """
        scope = resource, namespace
        if scope not in self._kept:
            trim = without_images if resource == NODES else _trimmed
            found = [trim(raw) for raw in self.stream(resource, namespace)]
            self._kept[scope] = [] if scope in self._errors else found
        return self._kept[scope]

    def by_name(self, resource: Resource, namespace: str | None = None) -> Mapping[str, Object]:
        """Those objects by name."""
        return {name_of(raw): raw for raw in self.objects(resource, namespace)}

    def stream(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        """Those objects as they are listed, whole and not kept."""
        scope, is_empty = (resource, namespace), True
        if scope in self._kept:
            yield from self._kept[scope]
            return
        try:
            for raw in self.source.list(resource, namespace):
                is_empty = False
                yield raw
        except (MissingRightError, NotServedError) as error:
            self._errors[scope] = error
            return
        except SourceError as error:
            if not self._keep_going:
                raise
            self._errors[scope] = error
            return
        if is_empty and not self.source.is_complete:
            self._errors[scope] = NotInFilesError(resource)

    # What is not known.

    @property
    def missing(self) -> Mapping[Resource, SourceError]:
        """The resources that were asked for and of which nothing is known, and why."""
        found: dict[Resource, SourceError] = {}
        for (resource, _), error in self._errors.items():
            found.setdefault(resource, error)
        return found

    @property
    def errors(self) -> tuple[str, ...]:
        """Return a line for each list that could not be read, of resources that there may be."""
        nothing = (NotServedError, NotInFilesError)
        return tuple(str(e) for e in self._errors.values() if not isinstance(e, nothing))

    @property
    def missing_rights(self) -> tuple[str, ...]:
        """Return a line for each list that the account may not have."""
        return tuple(str(e) for e in self._errors.values() if isinstance(e, MissingRightError))

    # The account of GPUs.

    def count(
        self, namespace: str | None = None, on_pod: OnPod = _ignore, *, with_nodes: bool = True
    ) -> Account:
        """Count the pods, of one namespace or of all, on the nodes.

        `on_pod` takes each pod. Raises SourceError if pods cannot be listed.
        """
        account = Account(self.objects(NODES) if with_nodes else (), self._profile)
        for pod in self.source.list(PODS, namespace):
            on_pod(pod, account.add_pod(pod))
        return account

    def usage(
        self,
        account: Account,
        namespace: str | None = None,
        pod_size: PodSize = DEFAULT_POD_SIZE,
    ) -> Usage:
        """Return the account with what drivers offer and what claims have."""
        return account.usage(self.stream(SLICES), self.stream(CLAIMS, namespace), pod_size)


def _trimmed(raw: Object) -> Object:
    metadata = as_object(raw.get("metadata"))
    if "managedFields" not in metadata:
        return raw
    return {**raw, "metadata": without_managed_fields(metadata)}
