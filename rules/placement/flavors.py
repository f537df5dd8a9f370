"""The flavors of Kueue whose nodes a pod selects."""

from typing import NamedTuple

from rules.gpu.quotas import ClusterQueueOfPod
from rules.inventory.inventory import Inventory, ResourceFlavor
from rules.objects.pod import Pod
from rules.placement.node_affinity import NodeSelection, flavor_selection


class QueueFlavors(NamedTuple):
    """The flavors of which a pod can get a resource from its queue, by name.

    The nodes of `selected` are such as the pod selects, or are not known, and those of `others` are
    not. `selection` is what Kueue compares; None if there is too much of it.
    """

    selected: tuple[str, ...]
    others: tuple[str, ...]
    selection: NodeSelection | None


def flavors_of(
    pod: Pod, resource: str, known: ClusterQueueOfPod, inventory: Inventory
) -> QueueFlavors:
    """Return the flavors with `resource` of the pod's queue.

    As Kueue does, this compares only labels that some flavor with the resource has.
    """
    names = known.queue.flavors.get(resource, ())
    listed = {name: inventory.find(ResourceFlavor, name) for name in names}
    empty = (
        inventory.find(ResourceFlavor, name) for name in known.queue.empty_flavors.get(resource, ())
    )
    keys = {key: None for flavor in (*listed.values(), *empty) if flavor for key in flavor.labels}
    selection = flavor_selection(pod, tuple(keys)) if keys else None
    others = tuple(
        name
        for name, flavor in listed.items()
        if flavor is not None and selection is not None and not selection.is_met(flavor.labels)
    )
    return QueueFlavors(tuple(name for name in names if name not in others), others, selection)
