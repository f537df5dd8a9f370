"""Following a resource at a real API server: what is there, what changes, and what is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.source.following import Following, Key
from cluster.source.objects import GPU_CLUSTERS, PODS, ListError, Object, Resource
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually


class Told:
    """The messages to a follower, as the state that follows from them."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.is_listed = False
        self.errors: list[ListError] = []

    def put(self, _resource: Resource, raw: Object) -> None:
        metadata = raw["metadata"]
        self.objects[metadata.get("namespace", ""), metadata["name"]] = raw

    def drop(self, _resource: Resource, key: Key) -> None:
        self.objects.pop(key, None)

    def listed(self, _resource: Resource) -> None:
        self.is_listed = True

    def failed(self, _resource: Resource, error: ListError) -> None:
        self.errors.append(error)

    def names(self, namespace: str) -> set[str]:
        return {name for home, name in [*self.objects] if home == namespace}


@contextmanager
def followed(kubeconfig: Path, resource: Resource) -> Iterator[Told]:
    """Follows a resource until the block is left; the thread ends with the tests at the latest."""
    told, stop = Told(), threading.Event()
    connection = Connection.like_kubectl(str(kubeconfig))
    following = Following(connection, resource, told, stop)
    thread = threading.Thread(target=following.run, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        stop.set()


def create_pod(plane: ControlPlane, namespace: str, name: str) -> str:
    """Create a pod that no node takes; the path of it."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "example/x"}]}
    spec |= {"nodeSelector": {"gpuward.test/none": "x"}, "terminationGracePeriodSeconds": 0}
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.create(path, {"metadata": {"name": name}, "spec": spec})
    return f"{path}/{name}"


def test_what_is_there_changes_and_goes_is_told(plane: ControlPlane) -> None:
    home = plane.namespace()
    create_pod(plane, home, "there")
    with followed(plane.kubeconfig, PODS) as told:
        eventually(lambda: told.is_listed)
        assert told.names(home) == {"there"}
        path = create_pod(plane, home, "new")
        eventually(lambda: told.names(home) == {"there", "new"})
        patch = {"metadata": {"labels": {"changed": "yes"}}}
        merge = "application/merge-patch+json"
        answer = plane.request("PATCH", path, patch, content_type=merge)
        assert answer.status == HTTPStatus.OK
        eventually(
            lambda: told.objects[home, "new"]["metadata"].get("labels") == {"changed": "yes"}
        )
        assert told.objects[home, "new"]["kind"] == "Pod"
        plane.request("DELETE", path)
        eventually(lambda: told.names(home) == {"there"})
        assert told.errors == []


def test_a_kind_that_is_not_installed_has_no_objects(plane: ControlPlane) -> None:
    with followed(plane.kubeconfig, GPU_CLUSTERS) as told:
        eventually(lambda: told.is_listed)
        assert (told.objects, told.errors) == ({}, [])


def test_an_api_server_that_is_away_is_told(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {}}]\n",
        encoding="utf-8",
    )
    with followed(kubeconfig, PODS) as told:
        eventually(lambda: bool(told.errors))
        assert not told.is_listed
        assert str(told.errors[0]).startswith("cannot list pods: ")


class Answers:
    """A connection whose answers and events are given: for what no API server can be made to do."""

    def __init__(self, lists: list[list[str]], events: list[Any]) -> None:
        self._lists, self._events = lists, events
        self.versions: list[str] = []

    def request(self, _method: str, _path: str, **_options: Any) -> Object:
        names = self._lists.pop(0)
        items = [{"metadata": {"namespace": "ml", "name": name}} for name in names]
        version = str(100 - len(self._lists))
        return {"apiVersion": "v1", "items": items, "metadata": {"resourceVersion": version}}

    def events(self, path: str) -> Iterator[Object]:
        self.versions.append(path.rpartition("=")[2])
        event = self._events.pop(0)
        if isinstance(event, Exception):
            raise event
        yield event


def test_a_state_that_is_forgotten_is_listed_again() -> None:
    from cluster.api.errors import ExpiredError  # noqa: PLC0415

    told, stop = Told(), threading.Event()
    metadata = {"namespace": "ml", "name": "new", "resourceVersion": "120"}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "130"}}}
    added = {"type": "ADDED", "object": {"metadata": metadata}}

    class Stopped(Exception):  # noqa: N818  # ends the loop
        pass

    events = [added, bookmark, ExpiredError("410"), Stopped()]
    answers = Answers([["gone", "stays"], ["stays", "new"]], events)
    following = Following(answers, PODS, told, stop)  # type: ignore[arg-type]  # as a connection
    with pytest.raises(Stopped):
        following.run()
    assert answers.versions == ["99", "120", "130", "100"]
    assert told.names("ml") == {"stays", "new"}
