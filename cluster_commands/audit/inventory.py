"""What an audit knows of the objects that pods refer to, or that limit them."""

from __future__ import annotations

from collections.abc import Callable

from cluster_commands.audit.objects import REFERRED
from cluster_commands.source.objects import ObjectSource, SourceError
from rules.inventory.builder import MAX_OBJECTS
from rules.inventory.inventory import Inventory
from rules.profile.profile import Profile
from rules.workloads.inventory import add_objects, new_builder


def read_inventory(
    source: ObjectSource,
    profile: Profile,
    namespace: str | None,
    on_error: Callable[[SourceError], object],
) -> Inventory:
    """The inventory of a cluster, or of files; what cannot be read is given to `on_error`.

    ConfigMaps are known only from files: the right to read all of a cluster is a strong one.
    """
    builder = new_builder(profile)
    for raw in source.list_all(REFERRED, namespace, on_error):
        add_objects(builder, raw, None)
    if builder.is_full:
        on_error(SourceError(f"of the objects that limit pods only {MAX_OBJECTS:,} are known"))
    return builder.inventory()
