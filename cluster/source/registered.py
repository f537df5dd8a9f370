"""What API servers send to gpuward, by the webhook configurations that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.source.objects import Object, matches
from rules.base.json_values import as_object, as_objects, as_text
from webhook.registration import NAME_LABEL, WEBHOOK_NAME_SUFFIX


def is_own(configuration: Object) -> bool:
    """Whether a webhook configuration is gpuward's."""
    entries = as_objects(configuration.get("webhooks"))
    return bool(entries) and all(
        as_text(entry.get("name")).endswith(WEBHOOK_NAME_SUFFIX) for _, entry in entries
    )


def registered_mode(
    configurations: Iterable[Object], namespace: str, labels: Mapping[str, Any]
) -> str:
    """The mode in which objects of a namespace with `labels` are sent to gpuward.

    `configurations` are gpuward's validating ones. Empty if such objects are not sent.
    """
    with_name = {NAME_LABEL: namespace, **labels}
    for configuration in configurations:
        for _, entry in as_objects(configuration.get("webhooks")):
            if matches(as_object(entry.get("namespaceSelector")), with_name):
                return as_text(entry.get("name")).partition(".")[0]
    return ""


# What API servers send to the webhooks of a configuration.


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
