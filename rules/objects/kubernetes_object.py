"""A read-only view of an object as a whole, for rules that are not about its pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rules.base.json_access import as_object
from rules.base.json_values import Json, Path, find_value
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.profile.profile import Profile

_JOB_SPECS: Mapping[str, Path] = {
    "Job": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec"),
}


class KubernetesObject:
    """The object `raw`, which is at `path` of the manifest.

    - `kind_trait`: the trait of its kind, 0 for a workload.
    - `pods`: those of a workload; they are subjects of their own as well.
    """

    stable_path = ""
    # Filled by `engine.bounds`.
    steps: int | None = None

    def __init__(
        self,
        owner: ObjectRef,
        profile: Profile,
        raw: Mapping[str, Any],
        path: Path = (),
        *,
        kind_trait: int = 0,
        pods: tuple[Pod, ...] = (),
    ) -> None:
        self.object = owner
        self.profile = profile
        self.raw = raw
        self.path = path
        self.kind_trait = kind_trait
        self.pods = pods
        self.results_by_rule: dict[str, Any] = {}
        """What each rule has said about this view, filled by `engine.evaluation`."""

    def refresh(self, manifest: Json, edited: Collection[Path]) -> None:
        """Show this object as it is in `manifest`, which edits have made of the previous one."""
        raw = as_object(find_value(manifest, self.path))
        if raw is not self.raw:
            self.raw, self.results_by_rule = raw, {}
            for pod in self.pods:
                pod.refresh(manifest, edited)

    @property
    def job_spec(self) -> tuple[Path, Mapping[str, Any]] | None:
        """The path and the spec of the Job; None for other kinds, and for a part of an object."""
        steps = _JOB_SPECS.get(self.object.kind)
        if steps is None or any(pod.is_partial for pod in self.pods):
            return None
        spec = self.raw
        for step in steps:
            spec = as_object(spec.get(str(step)))
        return (*self.path, *steps), spec
