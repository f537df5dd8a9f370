"""What API servers send to the webhooks of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.source.objects import Object
from rules.base.json_access import as_object, as_objects, as_text


def webhooks_for_pods(configuration: Object) -> list[Mapping[str, Any]]:
    """Its webhooks to which pods are sent when they are created."""
    return [
        entry
        for _, entry in as_objects(configuration.get("webhooks"))
        if any(_selects_new_pods(rule) for _, rule in as_objects(entry.get("rules")))
    ]


def _selects_new_pods(rule: Mapping[str, Any]) -> bool:
    groups, resources, operations = (
        _texts(rule, field) for field in ("apiGroups", "resources", "operations")
    )
    return (
        not groups.isdisjoint({"", "*"})
        and not resources.isdisjoint({"pods", "*", "*/*"})
        and not operations.isdisjoint({"CREATE", "*"})
    )


def _texts(rule: Mapping[str, Any], field: str) -> set[str]:
    listed = as_object(rule).get(field)
    return {as_text(item) for item in listed} if isinstance(listed, list) else set()
