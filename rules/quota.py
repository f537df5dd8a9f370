"""A read-only view of a ResourceQuota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.document import Json, Path, found
from rules.pod import ObjectRef
from rules.profile import Profile
from rules.reading import mapping


class Quota:
    """A ResourceQuota."""

    place = "spec.hard"

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
        self.answers: dict[str, Any] = {}  # what each rule has said, kept by `asking`

    def renewed(self, manifest: Json) -> Quota:
        """This quota as it is in `manifest`, which edits have made of the one it was read from."""
        hard = mapping(found(manifest, self.path))
        return self if hard is self.hard else Quota(self.object, self.profile, hard, self.path)
