"""List what the webhook is to know of other objects."""

from __future__ import annotations

from collections.abc import Callable

from cluster.source.objects import MissingRightError, NotServedError, ObjectSource, SourceError
from cluster_commands.source.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    NODES,
    RUNTIME_CLASSES,
)
from rules.base.json_access import as_object
from rules.inventory.inventory import Inventory
from rules.profile.profile import Profile
from rules.workloads.referred_objects import add_objects, new_builder, variables_of_runtimes

# Quotas and limits of namespaces are not listed: the API server itself compares pods with them.
ALWAYS = (RUNTIME_CLASSES, DEVICE_CLASSES, CLAIM_TEMPLATES, CLAIMS)


def list_inventory(
    source: ObjectSource,
    profile: Profile,
    *,
    reads_config_maps: bool,
    reads_nodes: bool,
    on_error: Callable[[SourceError], object],
) -> Inventory:
    """What `source` says of other objects.

    A resource that the API server does not serve is left out, and one that the account must not
    list, which is given to `on_error`. Raises SourceError if a list cannot be read to its end: half
    of what was known would be forgotten.
    """
    variables = variables_of_runtimes(profile)
    builder = new_builder(profile)
    chosen = ((CONFIG_MAPS, reads_config_maps), (NODES, reads_nodes))
    unknown = []
    for resource in (*ALWAYS, *(resource for resource, is_read in chosen if is_read)):
        try:
            for raw in source.list(resource):
                # Most ConfigMaps set no variable that matters, and there are many.
                if resource is not CONFIG_MAPS or variables.among(as_object(raw.get("data"))):
                    add_objects(builder, raw, None)
        except NotServedError:
            continue
        except MissingRightError as error:
            unknown.append(resource)
            on_error(error)
    # What a device class stands for is no resource of a node, so all of them must be known too.
    builder.nodes.has_all = reads_nodes and not {NODES, DEVICE_CLASSES}.intersection(unknown)
    if missing := builder.what_is_missing():
        on_error(SourceError(missing))
    if builder.nodes.is_full:
        why = "nodes have more labels about GPUs, or GPU resources, than an inventory holds: pods"
        on_error(SourceError(f"{why} are not compared with them"))
    return builder.inventory()
