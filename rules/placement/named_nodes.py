"""The GPU nodes that a pod selects by their names, as far as the inventory knows the nodes."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_objects, as_text
from rules.gpu.components import is_made_by_daemon_set
from rules.inventory.inventory import HOSTNAME_LABEL, GpuNodes, Inventory
from rules.objects.pod import Pod
from rules.placement.node_affinity import expressions, required_terms
from rules.profile.context import Context

NAME_FIELD = "metadata.name"


class NamedGpuNode(NamedTuple):
    """A GPU node that a pod selects by its name.

    `shown_by` is the resource or the label by which it is known for a GPU node.
    """

    name: str
    shown_by: str


def named_gpu_node(pod: Pod, context: Context) -> NamedGpuNode | None:
    """Return the first GPU node that `pod` selects by its name, or None.

    One is enough, whatever other names stand beside it: they may be those of no node.

    The node of a pod that exists does not count, because the scheduler has chosen it. Nor does the
    node for which the controller of a DaemonSet has made the pod.
    """
    found = (gpu_node(name, context.inventory) for name in _named_nodes(pod, context))
    return next(filter(None, found), None)


def gpu_node(name: str, inventory: Inventory) -> NamedGpuNode | None:
    """Return the GPU node `name`, or None if no GPU node with this name is known."""
    for shown_by, nodes in inventory.all_in(GpuNodes, None).items():
        if name in nodes.names:
            return NamedGpuNode(name, shown_by)
    return None


def names_nodes(term: Mapping[str, Any]) -> bool:
    """Return whether `term` of a node affinity selects nodes by their names."""
    return any(_named_by(term, is_agent=False))


def _named_nodes(pod: Pod, context: Context) -> Iterator[str]:
    is_agent = is_made_by_daemon_set(pod, context)
    if pod.spec.get("nodeName") and not pod.exists and not is_agent:
        yield as_text(pod.spec["nodeName"])
    if HOSTNAME_LABEL in pod.node_selector:
        yield as_text(pod.node_selector[HOSTNAME_LABEL])
    for _, term in required_terms(pod):
        yield from _named_by(term, is_agent=is_agent)


def _named_by(term: Mapping[str, Any], *, is_agent: bool) -> Iterator[str]:
    for _, demand in expressions(term):
        if demand.get("key") == HOSTNAME_LABEL:
            yield from _values(demand)
    for _, field in as_objects(term.get("matchFields")):
        if field.get("key") == NAME_FIELD and not is_agent:
            yield from _values(field)


def _values(demand: Mapping[str, Any]) -> Iterator[str]:
    values = demand.get("values")
    if demand.get("operator") == "In" and isinstance(values, list):
        yield from map(as_text, values)
