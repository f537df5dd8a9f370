"""All objects in a cluster, so that a test can see what an uninstallation leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.testkit.control_plane.cluster import Cluster


class ObjectIdentity(NamedTuple):
    """Identifies an object. One that is deleted and created again has another identity."""

    group: str
    resource: str
    namespace: str
    name: str
    uid: str


# Events come and go by themselves.
EVENT_RESOURCES = {("", "events"), ("events.k8s.io", "events")}


def list_objects(plane: Cluster) -> set[ObjectIdentity]:
    """Every object of every kind that the API server lists, except events."""
    return set(_identities(plane))


def _identities(plane: Cluster) -> Iterator[ObjectIdentity]:
    for group, path in _versions(plane):
        for resource in plane.request("GET", path).body["resources"]:
            name = resource["name"]
            if "list" not in resource["verbs"] or (group, name) in EVENT_RESOURCES:
                continue
            answer = plane.request("GET", f"{path}/{name}")
            assert answer.status == 200, answer
            for item in answer.body["items"] or ():
                yield _identity(group, name, item["metadata"])


def _versions(plane: Cluster) -> Iterator[tuple[str, str]]:
    """Each API group with the paths of all its versions: some kinds are in one version only."""
    yield "", "/api/v1"
    for group in plane.request("GET", "/apis").body["groups"]:
        for version in group["versions"]:
            yield group["name"], f"/apis/{version['groupVersion']}"


def _identity(group: str, resource: str, metadata: Any) -> ObjectIdentity:
    namespace, uid = metadata.get("namespace", ""), metadata.get("uid", "")
    return ObjectIdentity(group, resource, namespace, metadata["name"], uid)
