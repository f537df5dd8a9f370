"""All that is in a cluster, to tell what somebody has left in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.testkit.control_plane.cluster import Cluster


class Thing(NamedTuple):
    """An object; one that is made again under its name is another."""

    group: str
    resource: str
    namespace: str
    name: str
    uid: str


# What becomes of them is no matter of whoever they speak of.
PASSING = {("", "events"), ("events.k8s.io", "events")}


def everything(plane: Cluster) -> set[Thing]:
    """Every object of every kind that the API server lists, events aside."""
    return set(_found(plane))


def _found(plane: Cluster) -> Iterator[Thing]:
    for group, path in _versions(plane):
        for resource in plane.request("GET", path).body["resources"]:
            name = resource["name"]
            if "list" not in resource["verbs"] or (group, name) in PASSING:
                continue
            answer = plane.request("GET", f"{path}/{name}")
            assert answer.status == 200, answer
            for item in answer.body["items"] or ():
                yield _thing(group, name, item["metadata"])


def _versions(plane: Cluster) -> Iterator[tuple[str, str]]:
    """Each group with the paths of all its versions: some kinds are in one alone."""
    yield "", "/api/v1"
    for group in plane.request("GET", "/apis").body["groups"]:
        for version in group["versions"]:
            yield group["name"], f"/apis/{version['groupVersion']}"


def _thing(group: str, resource: str, metadata: Any) -> Thing:
    namespace, uid = metadata.get("namespace", ""), metadata.get("uid", "")
    return Thing(group, resource, namespace, metadata["name"], uid)
