"""A snapshot reads each resource once, and knows what it could not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.snapshot.snapshot import NotInFilesError, Snapshot
from cluster.source.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    SLICES,
    ListError,
    MissingRightError,
    NotServedError,
    Object,
    Resource,
    ResourceNames,
    SourceError,
)
from policies.loading import default_policy
from tests.testkit.cluster_commands.gpu_objects import node, pod

PROFILE = default_policy().profile
GPU = "nvidia.com/gpu"


class Source:
    """Objects in memory; `errors` come after them. `lists` are the lists that were asked for."""

    def __init__(
        self, *objects: Object, is_complete: bool = True, **errors: Callable[[Resource], Exception]
    ) -> None:
        self.is_complete = is_complete
        self._objects, self._errors = objects, errors
        self.lists: list[str] = []

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        self.lists.append(f"{resource.name} {namespace or ''}".strip())
        for raw in self._objects:
            home = raw["metadata"].get("namespace")
            if raw["kind"] == resource.kind and namespace in {None, home}:
                yield raw
        if resource.name in self._errors:
            raise self._errors[resource.name](resource)

    def list_all(
        self, names: ResourceNames, namespace: str | None, on_error: Callable[[Any], object]
    ) -> Iterator[Object]:
        raise NotImplementedError

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        raise NotImplementedError

    def server_version(self) -> str:
        return ""

    def again(self) -> Source:
        return self


def forbidden(resource: Resource) -> Exception:
    return MissingRightError(resource, None)


def broken(resource: Resource) -> Exception:
    return ListError(resource, "", "500")


def test_each_resource_is_read_once_however_often_it_is_asked_for() -> None:
    source = Source(node("a", {GPU: "8"}), pod("p", {GPU: 2}, on="a"))
    snapshot = Snapshot(source, PROFILE)
    assert not source.lists  # nothing is read that nobody asks for
    (found,) = snapshot.objects(NODES)
    assert snapshot.by_name(NODES) == {"a": found}
    assert snapshot.objects(CLAIMS, "team-a") == [*snapshot.stream(CLAIMS, "team-a")] == []
    account = snapshot.count()
    assert [load.requests[GPU] for _, load in account.nodes()] == [2 * 10**9]
    assert snapshot.usage(account).nodes[0].resources[0].free == 6
    assert source.lists == [
        *("nodes", "resourceclaims team-a", "pods", "resourceslices", "resourceclaims")
    ]


def test_what_api_servers_write_about_fields_and_images_of_nodes_are_not_kept() -> None:
    given = node("a", {GPU: "8"})
    given["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    given["status"]["images"] = [{"names": ["x"]}]
    (found,) = Snapshot(Source(given), PROFILE).objects(NODES)
    assert found == node("a", {GPU: "8"})


def test_it_is_known_why_there_is_nothing() -> None:
    """The command decides what that means: often there is just none."""
    source = Source(resourceslices=NotServedError, resourceclaims=forbidden)
    snapshot = Snapshot(source, PROFILE)
    for resource in (SLICES, CLAIMS, DEVICE_CLASSES):
        assert snapshot.objects(resource) == []
    assert {each.name: type(error) for each, error in snapshot.missing.items()} == {
        "resourceslices": NotServedError,
        "resourceclaims": MissingRightError,
    }
    needed = "it needs the right to list resourceclaims.resource.k8s.io in all namespaces"
    assert [line.rpartition("; ")[2] for line in snapshot.missing_rights] == [needed]
    assert snapshot.errors == snapshot.missing_rights


def test_files_need_not_have_what_a_cluster_has() -> None:
    snapshot = Snapshot(Source(node("a"), is_complete=False), PROFILE)
    assert snapshot.objects(CLAIMS) == []
    assert len(snapshot.objects(NODES)) == 1
    assert [type(error) for error in snapshot.missing.values()] == [NotInFilesError]
    assert not snapshot.errors


def test_a_list_that_breaks_off_is_an_error_or_not_known_as_a_whole() -> None:
    source = Source(node("a", {GPU: "8"}), pod("p", on="a"), nodes=broken)
    with pytest.raises(SourceError, match="500"):
        Snapshot(source, PROFILE).objects(NODES)
    snapshot = Snapshot(source, PROFILE, keep_going=True)
    assert snapshot.objects(NODES) == []
    assert snapshot.errors == ("cannot list nodes: 500",)
    assert not [*snapshot.count().nodes()]


@pytest.mark.parametrize("keep_going", [False, True])
def test_without_pods_there_is_no_account(*, keep_going: bool) -> None:
    source = Source(node("a"), pods=forbidden)
    with pytest.raises(MissingRightError):
        Snapshot(source, PROFILE, keep_going=keep_going).count()
    assert source.lists[-1] == PODS.name
