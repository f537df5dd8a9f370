"""The traits that do not come from a pod: what its profile says, and which objects are known."""

from collections.abc import Mapping

from rules.base.traits import (
    KNOWN_CLAIMS,
    KNOWN_CONFIG_MAPS,
    KNOWN_LIMIT_RANGES,
    KNOWN_NODES,
    KNOWN_QUEUES,
    KNOWN_QUOTAS,
    KNOWN_SHARE_POOLS,
    PROFILE_ENFORCED_LABELS,
    PROFILE_SCHEDULERS,
)
from rules.inventory.inventory import Inventory
from rules.inventory.records import (
    ConfigMap,
    LimitRange,
    LocalQueue,
    NodeSurvey,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    SharePool,
)
from rules.profile.profile import Profile

_TRAITS: Mapping[type, int] = {
    ConfigMap: KNOWN_CONFIG_MAPS,
    LimitRange: KNOWN_LIMIT_RANGES,
    LocalQueue: KNOWN_QUEUES,
    NodeSurvey: KNOWN_NODES,
    ResourceClaim: KNOWN_CLAIMS,
    ResourceClaimTemplate: KNOWN_CLAIMS,
    ResourceQuota: KNOWN_QUOTAS,
    SharePool: KNOWN_SHARE_POOLS,
}


def inventory_traits(inventory: Inventory) -> int:
    """The traits of every subject that is evaluated with `inventory`."""
    return inventory.once(_inventory_traits, None) if inventory else 0


def _inventory_traits(inventory: Inventory, _argument: None) -> int:
    traits = 0
    for kind in inventory.records:
        traits |= _TRAITS.get(kind, 0)
    return traits


def profile_traits(profile: Profile) -> int:
    """The traits of every subject that is evaluated with `profile`."""
    traits = PROFILE_SCHEDULERS if profile.schedulers else 0
    if any(affinity.enforce for affinity in profile.affinities):
        traits |= PROFILE_ENFORCED_LABELS
    return traits
