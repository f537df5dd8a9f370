"""The resource claims that a pod declares, and that its containers use by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_objects, as_text
from rules.inventory.inventory import Inventory
from rules.inventory.records import ResourceClaim, ResourceClaimTemplate
from rules.objects.pod import Pod

FIELD = "resourceClaims"


def declared_claims(pod: Pod) -> list[tuple[int, Mapping[str, Any]]]:
    """The entries of `resourceClaims` with their indices."""
    return as_objects(pod.spec.get(FIELD))


def used_claims(pod: Pod) -> frozenset[str]:
    """The names of the claims that containers use."""
    return frozenset(as_text(claim.get("name")) for c in pod.containers for _, claim in c.claims)


def device_classes(
    entry: Mapping[str, Any], inventory: Inventory, namespace: str
) -> frozenset[str]:
    """The device classes of the claim, or of the template, that an entry of a pod refers to."""
    claim = inventory.find(ResourceClaim, as_text(entry.get("resourceClaimName")), namespace)
    if claim is not None:
        return claim.classes
    template = as_text(entry.get("resourceClaimTemplateName"))
    found = inventory.find(ResourceClaimTemplate, template, namespace)
    return found.classes if found else frozenset()
