"""Recognise ordinary Pods, which are most of all objects, without a search for pods in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Json
from rules.objects.object_ref import object_ref
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.field_types import COMPILED_METADATA, COMPILED_POD, conforms


def well_formed_pod(manifest: Json) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Spec and metadata of a Pod whose fields all have the right types; None for all else.

    Such a pod is the manifest's only subject, and most such pods need no view. A Pod without
    containers is left to the search, which looks for them elsewhere.
    """
    if type(manifest) is not dict or manifest.get("kind") != "Pod" or "items" in manifest:
        return None
    spec: Any = manifest.get("spec")
    metadata: Any = manifest.get("metadata")
    if manifest.get("apiVersion") != "v1" or not conforms(spec, COMPILED_POD):
        return None
    if not spec.get("containers"):
        return None
    return (spec, metadata) if conforms(metadata, COMPILED_METADATA) else None


def pod_from_raw(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], profile: Profile, namespace: str | None
) -> Pod:
    """The view of a `well_formed_pod`."""
    owner = object_ref("Pod", "", metadata, namespace)
    return Pod(
        owner,
        profile,
        spec=(spec, ("spec",)),
        metadata=(metadata, ("metadata",)),
        stable_path="spec",
    )
