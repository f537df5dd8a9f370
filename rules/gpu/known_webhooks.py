"""The admission webhooks of GPU platforms, known by the names of their entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_objects, as_text
from rules.base.words import matches_any
from rules.objects.kubernetes_object import KubernetesObject

OWN = ("*.gpuward.io",)
# What rules of webhooks call pods. "pods/*" is not among them: it means the subresources of pods.
PODS = frozenset({"pods", "*", "*/*"})
# Read in Project-HAMi/HAMi charts/hami/templates/scheduler/webhook.yaml at 2659bf678012,
# kai-scheduler/KAI-Scheduler pkg/operator/operands/admission/resources.go at 20e273b67cef
# (SERVICE.NAMESPACE.svc, here with the defaults), volcano-sh/volcano
# installer/helm/chart/volcano/templates/webhooks.yaml at 0b05bb71f19c (mutatepod.volcano.sh), and
# koordinator-sh/koordinator config/webhook/manifests.yaml at 21bf5ea9f7d6
# (mpod-create.koordinator.sh).
PEERS = ("vgpu.hami.io", "admission.kai-scheduler.svc", "*.volcano.sh", "*.koordinator.sh")


def known_entries(
    subject: KubernetesObject, names: tuple[str, ...]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries of a webhook configuration with one of `names`, with their indices."""
    for index, entry in as_objects(subject.raw.get("webhooks")):
        if matches_any(names, as_text(entry.get("name"))):
            yield index, entry


def core_resources(entry: Mapping[str, Any], operation: str) -> set[str]:
    """The resources of the core API group for which the entry is called at `operation`."""
    found: set[str] = set()
    for _, rule in as_objects(entry.get("rules")):
        if _lists(rule, "apiGroups", "") and _lists(rule, "operations", operation):
            found |= _texts(rule, "resources")
    return found


def entry_name(entry: Mapping[str, Any]) -> str:
    """The name of the entry, `""` if it has none."""
    return as_text(entry.get("name"))


def _lists(rule: Mapping[str, Any], field: str, value: str) -> bool:
    return not {value, "*"}.isdisjoint(_texts(rule, field))


def _texts(rule: Mapping[str, Any], field: str) -> set[str]:
    values = rule.get(field)
    return {v for v in values if isinstance(v, str)} if isinstance(values, list) else set()
