"""Find the objects that other objects refer to, and add them to an inventory."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_values import Json, as_object, as_objects, as_text, find_value
from rules.base.traits import LEGACY_VARIABLES
from rules.inventory.builder import MIG_CONFIGS, InventoryBuilder, VariableNames
from rules.inventory.collectors import GpuNodeCollector, NodeCollector
from rules.objects.object_ref import group_of, object_ref
from rules.profile.profile import Profile
from rules.workloads.discovery import flatten_lists
from rules.workloads.files_in_objects import files_with
from rules.workloads.kinds import POD_TEMPLATE_PATHS

# What nodes offer as the sum of their cards, and the resource that says how many these are:
# `rules.placement.node_labels` has both names too.
_CARD_COUNT_RESOURCE_BY_TOTAL = {"aliyun.com/gpu-mem": "aliyun.com/gpu-count"}


def variables_of_runtimes(profile: Profile) -> VariableNames:
    """The variables that container runtimes read."""
    own = (*profile.visible_devices, *profile.alternative_variables)
    return VariableNames((*own, *LEGACY_VARIABLES))


def new_builder(
    profile: Profile,
    namespace_labels: frozenset[str] | None = None,
    node_labels: Iterable[str] = (),
) -> InventoryBuilder:
    """An empty inventory, for what rules compare with other objects under `profile`.

    Of nodes these are the labels that say something about GPUs, and those with the keys
    `node_labels`; the GPU resources; the names of those that have any; and how large the parts of
    cards are that ACK's device plugin shares. Of Namespaces it keeps the labels with the keys
    `namespace_labels`, or all of them.
    """
    affinities = (affinity.key for affinity in profile.affinities)
    labels = (*profile.node_labels, *profile.node_modes, *affinities, *node_labels)
    nodes = NodeCollector(dict.fromkeys(labels), profile.resources, _CARD_COUNT_RESOURCE_BY_TOTAL)
    gpu_nodes = GpuNodeCollector(profile.resources, profile.is_gpu_label)
    return InventoryBuilder(variables_of_runtimes(profile), nodes, gpu_nodes, namespace_labels)


def add_objects(
    builder: InventoryBuilder, manifest: Json, namespace: str | None, unnamed: str = ""
) -> None:
    """Add `manifest`, or the objects of the List that it is, to the inventory of `builder`.

    `namespace` is where objects go that name none; if that is not known, `unnamed` stands for it.
    """
    for raw, place in _objects_and_places(manifest, namespace, unnamed):
        builder.add(*place, raw)


def add_patched_objects(
    builder: InventoryBuilder, manifest: Json, namespace: str | None, unnamed: str = ""
) -> None:
    """Make the objects unknown that `manifest` is a patch of; see `add_objects`."""
    for _, place in _objects_and_places(manifest, namespace, unnamed):
        builder.add_patched(*place)


def _objects_and_places(
    manifest: Json, namespace: str | None, unnamed: str
) -> Iterator[tuple[Mapping[str, Any], tuple[str, str, str, str]]]:
    """Yield each object, and its kind, group, namespace and name."""
    for raw, _ in flatten_lists(as_object(manifest), ()):
        kind, group = as_text(raw.get("kind")), group_of(raw)
        ref = object_ref(kind, group, as_object(raw.get("metadata")), namespace)
        name = as_text(as_object(raw.get("metadata")).get("name"))
        yield raw, (kind, group, ref.namespace or unnamed, name)


def add_mig_configurations(builder: InventoryBuilder, manifest: Json) -> None:
    """Add the names in files for NVIDIA's MIG manager that `manifest` has for a chart.

    That is an object with the values of a chart, or these alone.
    """
    for raw, _ in flatten_lists(as_object(manifest), ()):
        # A ConfigMap is an object of its own, whose contents may differ in other files.
        if raw.get("kind") != "ConfigMap":
            for file in files_with(raw, MIG_CONFIGS):
                builder.add_mig_configuration(file.text)


def add_gpu_patches(builder: InventoryBuilder, manifest: Json, profile: Profile) -> None:
    """Add each object of `manifest` that is a patch by which containers ask for GPUs.

    Such a container has no image: that is in the object which the patch changes.
    """
    for raw, _ in flatten_lists(as_object(manifest), ()):
        kind, name = as_text(raw.get("kind")), as_text(as_object(raw.get("metadata")).get("name"))
        path = POD_TEMPLATE_PATHS.get(kind)
        spec = as_object(find_value(dict(raw), (*path, "spec"))) if path is not None else {}
        for _, container in as_objects(spec.get("containers")):
            if container.get("image"):
                continue
            resources = as_object(container.get("resources"))
            amounts = (*as_object(resources.get("limits")), *as_object(resources.get("requests")))
            if wanted := next(filter(profile.resource, amounts), ""):
                builder.add_gpu_patch(f"{kind}/{name}", wanted)
