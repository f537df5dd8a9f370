"""A read-only view of a ResourceQuota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rules.base.json_access import as_object
from rules.base.json_values import Json, Path, find_value
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile

# How the keys of a quota begin that limit a resource of pods.
LIMITS, REQUESTS = "limits.", "requests."


class Quota:
    """A ResourceQuota."""

    stable_path = "spec.hard"

    def __init__(
        self,
        owner: ObjectRef,
        profile: Profile,
        hard: Mapping[str, Any],
        path: Path = ("spec", "hard"),
    ) -> None:
        self.object = owner
        self.profile = profile
        self.hard = hard
        self.path = path
        self.results_by_rule: dict[str, Any] = {}
        """What each rule has said about this view, filled by `engine.evaluation`."""

    def refresh(self, manifest: Json, _edited: Iterable[Path]) -> None:
        """Show this quota as it is in `manifest`, which edits have made of the previous one."""
        hard = as_object(find_value(manifest, self.path))
        if hard is not self.hard:
            self.hard, self.results_by_rule = hard, {}
