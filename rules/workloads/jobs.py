"""The spec of a Job, wherever a built-in workload keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_object
from rules.base.json_patch import Path
from rules.objects.kubernetes_object import KubernetesObject

_SPECS: Mapping[str, Path] = {
    "Job": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec"),
}


def job_spec(workload: KubernetesObject) -> tuple[Path, Mapping[str, Any]] | None:
    """The spec of the Job and its path; None for other kinds, and for a part of an object."""
    steps = _SPECS.get(workload.object.kind)
    if steps is None or any(pod.is_partial for pod in workload.pods):
        return None
    spec = workload.raw
    for step in steps:
        spec = as_object(spec.get(str(step)))
    return (*workload.path, *steps), spec
