"""List what the webhook is to know of other objects."""

from __future__ import annotations

from collections.abc import Callable

from cluster_commands.source.objects import (
    MissingRightError,
    NotServedError,
    ObjectSource,
    SourceError,
)
from cluster_commands.source.resources import CONFIG_MAPS, RUNTIME_CLASSES
from rules.base.json_access import as_object
from rules.inventory.builder import InventoryBuilder
from rules.inventory.inventory import Inventory
from rules.profile.profile import Profile
from rules.workloads.inventory import add_objects, variables_of_runtimes

# Quotas and limits of namespaces are not listed: the API server itself compares pods with them.
CLUSTER_WIDE = (RUNTIME_CLASSES,)


def list_inventory(
    source: ObjectSource,
    profile: Profile,
    *,
    reads_config_maps: bool,
    on_error: Callable[[SourceError], object],
) -> Inventory:
    """What `source` says of other objects.

    A resource that the API server does not serve is left out, and one that the account must not
    list, which is given to `on_error`. Raises SourceError if a list cannot be read to its end: half
    of what was known would be forgotten.
    """
    variables = variables_of_runtimes(profile)
    builder = InventoryBuilder(variables)
    for resource in (*CLUSTER_WIDE, *((CONFIG_MAPS,) if reads_config_maps else ())):
        try:
            for raw in source.list(resource):
                # Most ConfigMaps set no variable that matters, and there are many.
                if resource is not CONFIG_MAPS or variables.among(as_object(raw.get("data"))):
                    add_objects(builder, raw, None)
        except NotServedError:
            continue
        except MissingRightError as error:
            on_error(error)
    if builder.is_full:
        on_error(SourceError("there are more objects than an inventory holds"))
    return builder.inventory()
