"""Delete webhook configurations, so that the API server no longer calls the webhook."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cluster.api.errors import ClusterError, ConfigurationRef, Configurations
from webhook.registration import WEBHOOK_NAME_SUFFIX

# Seconds between attempts: new RBAC rights take a moment to have an effect.
RETRY_SECONDS = (1.0, 3.0)

REPAIR_ANNOTATION = "gpuward.io/repair-binding"
"""Of a webhook configuration: the ClusterRoleBinding by which gpuward may create it again.

It is `NAME-repair`, as in the chart. Another name is ignored: a user who may write an annotation
must not choose which binding an administrator deletes.
"""


class NotGpuwardError(Exception):
    """The configuration of this name does not belong to gpuward."""


def remove(
    cluster: Configurations,
    refs: Sequence[ConfigurationRef],
    *,
    on_deleted: Callable[[ConfigurationRef, str], None],
    on_failed: Callable[[ConfigurationRef, str], None],
    repair_binding: str = "",
    retry_seconds: Sequence[float] = RETRY_SECONDS,
) -> list[ConfigurationRef]:
    """Delete the configurations `refs`, each independently; returns those that may remain.

    `on_deleted` and `on_failed` are called with each and what happened. What the cluster refuses
    is tried again after each pause in `retry_seconds`.

    First the ClusterRoleBinding is deleted by which gpuward may create a deleted configuration
    again: the one called `repair_binding`, or the one that the configuration names.
    """
    foreign, remaining = [], list(refs)
    for pause in (0.0, *retry_seconds):
        time.sleep(pause)
        current, remaining = remaining, []
        for ref in current:
            try:
                on_deleted(ref, _remove(cluster, ref, repair_binding))
            except NotGpuwardError as error:
                on_failed(ref, str(error))
                foreign.append(ref)
            except ClusterError as error:
                on_failed(ref, str(error))
                remaining.append(ref)
        if not remaining:
            break
    return foreign + remaining


def _remove(cluster: Configurations, ref: ConfigurationRef, repair_binding: str) -> str:
    """Delete one configuration; returns what happened, in words."""
    configuration = cluster.get_configuration(ref)
    webhooks = (configuration or {}).get("webhooks") or ()
    names = [webhook["name"] for webhook in webhooks]
    if foreign := [name for name in names if not name.endswith(WEBHOOK_NAME_SUFFIX)]:
        raise NotGpuwardError(f"not gpuward's: it contains the webhook {foreign[0]}")
    annotations = (configuration or {}).get("metadata", {}).get("annotations") or {}
    own_binding = f"{ref.name}-repair"
    is_named = annotations.get(REPAIR_ANNOTATION) == own_binding
    if binding := repair_binding or (own_binding if is_named else ""):
        cluster.delete_cluster_role_binding(binding)
    if configuration is None:
        return "did not exist"
    # With its uid, so that a newer configuration of the same name is not deleted unchecked.
    finalizers = cluster.delete_configuration(ref, configuration["metadata"]["uid"])
    if finalizers:
        raise ClusterError(f"its finalizers keep it: {', '.join(finalizers)}")
    return "deleted"
