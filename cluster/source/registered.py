"""What API servers send to gpuward, by the webhook configurations that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.source.objects import Object
from cluster_commands.label_selectors import matches
from rules.base.json_access import as_object, as_objects, as_text
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
