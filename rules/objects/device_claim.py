"""A read-only view of a ResourceClaim, or of the claim in a ResourceClaimTemplate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_patch import Json, Path, find_value
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile

GROUP = "resource.k8s.io"
# Kind -> the path of the claim's spec.
CLAIM_PATHS: Mapping[str, tuple[str, ...]] = {
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec", "spec"),
}


class DeviceRequest(NamedTuple):
    """A request of a claim: its `fields`, which are at `path` of the manifest, and its name."""

    path: Path
    fields: Mapping[str, Any]
    name: str


class DeviceClaim:
    """A claim for devices. `spec` is at `path` of the manifest."""

    def __init__(
        self, owner: ObjectRef, profile: Profile, spec: Mapping[str, Any], path: Path
    ) -> None:
        self.object = owner
        self.profile = profile
        self.spec = spec
        self.path = path
        self.stable_path = ".".join(CLAIM_PATHS[owner.kind])
        self.results_by_rule: dict[str, Any] = {}
        """What each rule has said about this view, filled by `engine.evaluation`."""

    def refresh(self, manifest: Json, _edited: Iterable[Path]) -> None:
        """Show this claim as it is in `manifest`, which edits have made of the previous one."""
        spec = as_object(find_value(manifest, self.path))
        if spec is not self.spec:
            self.spec, self.results_by_rule = spec, {}

    def requests(self) -> Iterator[DeviceRequest]:
        """Every request, and every alternative of one.

        Until v1beta1 a request has the fields itself, and since v1beta2 in `exactly`.
        """
        listed = as_object(self.spec.get("devices")).get("requests")
        for index, request in as_objects(listed):
            path = (*self.path, "devices", "requests", index)
            name = as_text(request.get("name"))
            yield DeviceRequest(path, request, name)
            yield DeviceRequest((*path, "exactly"), as_object(request.get("exactly")), name)
            for number, alternative in as_objects(request.get("firstAvailable")):
                place = (*path, "firstAvailable", number)
                full_name = f"{name}/{as_text(alternative.get('name'))}"
                yield DeviceRequest(place, alternative, full_name)
