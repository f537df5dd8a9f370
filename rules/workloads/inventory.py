"""Find the objects that other objects refer to, and add them to an inventory."""

from __future__ import annotations

from rules.base.json_access import as_object, as_text
from rules.base.json_patch import Json
from rules.base.patterns import matches_any
from rules.inventory.builder import InventoryBuilder, IsVariable
from rules.objects.object_ref import object_ref
from rules.profile.profile import Profile
from rules.workloads.lists import flatten_lists


def variables_of_runtimes(profile: Profile) -> IsVariable:
    """Whether container runtimes read a variable, by its name."""
    variables = (*profile.visible_devices, *profile.alternative_variables)
    return lambda name: matches_any(variables, name)


def add_objects(
    builder: InventoryBuilder, manifest: Json, namespace: str | None, unnamed: str = ""
) -> None:
    """Add `manifest`, or the objects of the List that it is, to the inventory of `builder`.

    `namespace` is where objects go that name none; if that is not known, `unnamed` stands for it.
    """
    for raw, _ in flatten_lists(as_object(manifest), ()):
        kind, group = as_text(raw.get("kind")), as_text(raw.get("apiVersion")).rpartition("/")[0]
        ref = object_ref(kind, group, as_object(raw.get("metadata")), namespace)
        name = as_text(as_object(raw.get("metadata")).get("name"))
        builder.add(kind, group, ref.namespace or unnamed, name, raw)
