"""Which resources an API server serves, and in which versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cluster.protocols import ClusterError
from cluster.source.objects import DiscoveryError, Object, Resource, ResourceNames
from rules.base.json_access import as_object, as_objects, as_text


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
