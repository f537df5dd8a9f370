"""The admission webhooks of GPU platforms, known by the names of their entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_objects, as_text
from rules.base.patterns import matches_any
from rules.objects.kubernetes_object import KubernetesObject

OWN = ("*.gpuward.io",)
# Project-HAMi/HAMi charts/hami/templates/scheduler/webhook.yaml, kai-scheduler/KAI-Scheduler
# pkg/operator/operands/admission/resources.go, volcano-sh/volcano
# installer/helm/chart/volcano/templates/webhooks.yaml, koordinator-sh/koordinator
# config/webhook/manifests.yaml.
PEERS = ("vgpu.hami.io", "admission.kai-scheduler.svc", "*.volcano.sh", "*.koordinator.sh")


def known_entries(
    subject: KubernetesObject, names: tuple[str, ...]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries of a webhook configuration with one of `names`, with their indices."""
    for index, entry in as_objects(subject.raw.get("webhooks")):
        if matches_any(names, as_text(entry.get("name"))):
            yield index, entry


def resources_of(entry: Mapping[str, Any]) -> set[str]:
    """The resources for which the entry is called, in all API groups."""
    listed = (rule.get("resources") for _, rule in as_objects(entry.get("rules")))
    return {as_text(name) for names in listed if isinstance(names, list) for name in names}
