"""Containers in a built-in kind that are not where the kind has its containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_objects
from rules.base.json_values import Path, pointer
from rules.objects.pod_layout import CONTAINER_LISTS
from rules.workloads.json_node import JsonNode

_CONTAINER_FIELDS = frozenset(CONTAINER_LISTS)
_STATUS = frozenset({"status"})


def misplaced_containers(
    raw: Mapping[str, Any], kind: str, right: Path
) -> Iterator[tuple[Path, str]]:
    """The path of each list of containers in `raw`, and what to write instead.

    `raw` is an object of the built-in `kind`, and has no containers at `right`, where they belong.
    The API server ignores or refuses those elsewhere, so they are a mistake, and a patch has none.
    """
    waiting = [JsonNode(raw)]
    while waiting:
        node = waiting.pop()
        skipped = _STATUS if node.parent is None else frozenset[str]()
        if isinstance(node.value, dict):
            names = [name for name in CONTAINER_LISTS if as_objects(node.value.get(name))]
            skipped |= _CONTAINER_FIELDS
            for name in names:
                place = (*node.path, name)
                where = f"write them as {pointer((*right, name))}"
                yield place, f"{pointer(place)} is not where a {kind} has containers: {where}"
        waiting += [child for child in node.children() if child.key not in skipped][::-1]
