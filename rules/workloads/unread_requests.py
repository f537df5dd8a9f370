"""GPU requests in custom resources in which the search finds no pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_object, as_text
from rules.base.json_values import Json, Path
from rules.base.words import matches_any
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects
from rules.workloads.json_node import JsonNode
from rules.workloads.kinds import CAPACITY_GROUPS, PATTERN_GROUPS
from rules.workloads.lists import flatten_lists
from rules.workloads.node_pool_kinds import NODE_POOL_KINDS

# Some kinds have a number of GPUs under this key, and make a resource of it.
_SHORT_NAME = "gpu"
_AMOUNTS = frozenset({"limits", "requests", "resources"})
# `metadata` has no requests; `status` is what a controller saw.
_OBJECT_FIELDS = frozenset({"metadata", "status"})


def unread_gpu_requests(manifest: Json, profile: Profile) -> Iterator[tuple[Path, str]]:
    """The first request of each custom resource without pods: its path, and its name.

    A name of a GPU resource that is a key counts as a request.
    """
    for raw, base in flatten_lists(as_object(manifest), ()):
        group = as_text(raw.get("apiVersion")).rpartition("/")[0]
        if group in BUILT_IN_GROUPS or matches_any((*PATTERN_GROUPS, *CAPACITY_GROUPS), group):
            continue
        if (group, as_text(raw.get("kind"))) in NODE_POOL_KINDS:
            continue
        found = _first_request(raw, profile)
        if found is not None and not _has_pod(raw, profile):
            yield (*base, *found), as_text(found[-1])


def _first_request(raw: Mapping[str, Any], profile: Profile) -> Path | None:
    waiting = [JsonNode(raw)]
    while waiting:
        node = waiting.pop()
        if isinstance(node.value, dict):
            for key in node.value:
                if _is_request(key, node, profile):
                    return (*node.path, key)
        skipped = _OBJECT_FIELDS if node.parent is None else frozenset[str]()
        waiting += [child for child in node.children() if child.key not in skipped][::-1]
    return None


def _is_request(key: str, holder: JsonNode, profile: Profile) -> bool:
    if key == _SHORT_NAME:
        return holder.key in _AMOUNTS
    return "/" in key and profile.resource(key) is not None


def _has_pod(raw: Mapping[str, Any], profile: Profile) -> bool:
    return any(isinstance(subject, Pod) for subject in find_subjects({**raw}, profile))
