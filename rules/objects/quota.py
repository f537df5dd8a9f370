"""A read-only view of a ResourceQuota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_object
from rules.base.json_patch import Json, Path, find_value
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile


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

    def refreshed(self, manifest: Json) -> Quota:
        """This quota as it is in `manifest`, which edits have made of the one it was read from."""
        hard = as_object(find_value(manifest, self.path))
        return self if hard is self.hard else Quota(self.object, self.profile, hard, self.path)
