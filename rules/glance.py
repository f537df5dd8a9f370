"""Ordinary Pods, which are most of what is asked about, told from the rest without a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.document import Json
from rules.pod import Pod
from rules.profile import Profile
from rules.shapes import METADATA_FIELDS, POD_FIELDS, conforms
from rules.workloads import owner_of


def plain_pod(manifest: Json) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Spec and metadata of a Pod in which all is as it should be; of anything else nothing.

    There is nothing to search for in such a pod: it is the only subject, and most need no view.
    """
    if type(manifest) is not dict or manifest.get("kind") != "Pod" or "items" in manifest:
        return None
    spec: Any = manifest.get("spec")
    metadata: Any = manifest.get("metadata")
    if manifest.get("apiVersion") != "v1" or not conforms(spec, POD_FIELDS):
        return None
    return (spec, metadata) if conforms(metadata, METADATA_FIELDS) else None


def view_of(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], profile: Profile, namespace: str | None
) -> Pod:
    """The view of a `plain_pod`."""
    owner = owner_of("Pod", "", metadata, namespace)
    return Pod(owner, profile, (spec, ("spec",)), (metadata, ("metadata",)), "spec")
