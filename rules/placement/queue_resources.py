"""The resources of which Kueue's ClusterQueues and Cohorts have quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_values import Path
from rules.objects.kubernetes_object import KubernetesObject

AMOUNTS = ("nominalQuota", "borrowingLimit", "lendingLimit")


class QueueAmount(NamedTuple):
    """An amount of a resource in a flavor."""

    path: Path
    resource: str
    value: Any


def covered_resources(queue: KubernetesObject) -> Iterator[tuple[Path, str]]:
    """The names in `coveredResources` and in the quotas of flavors, with their paths."""
    for path, group in _groups(queue):
        covered = group.get("coveredResources")
        for index, name in enumerate(covered if isinstance(covered, list) else ()):
            yield (*path, "coveredResources", index), as_text(name)
        for place, resource in _resources(group, path):
            yield (*place, "name"), as_text(resource.get("name"))


def queue_amounts(queue: KubernetesObject) -> Iterator[QueueAmount]:
    """Every amount of every resource, in the order of the manifest."""
    for path, group in _groups(queue):
        for place, resource in _resources(group, path):
            for field in AMOUNTS:
                if resource.get(field) is not None:
                    name = as_text(resource.get("name"))
                    yield QueueAmount((*place, field), name, resource[field])


def _groups(queue: KubernetesObject) -> Iterator[tuple[Path, Any]]:
    listed = as_object(queue.raw.get("spec")).get("resourceGroups")
    for index, group in as_objects(listed):
        yield (*queue.path, "spec", "resourceGroups", index), group


def _resources(group: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    for index, flavor in as_objects(group.get("flavors")):
        for position, resource in as_objects(flavor.get("resources")):
            yield (*path, "flavors", index, "resources", position), resource
