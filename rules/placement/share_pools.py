"""The pools of nodes of ACK on which pods share cards, as far as manifests name them.

A pool is known by `nodeSelector` alone, if one of its labels is the mode `core_mem` or names a node
pool. A pod with required node affinity is in no known pool, because it may require more.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_values import Json
from rules.base.quantity import Quantity, parse
from rules.base.words import has_placeholder
from rules.objects.object_ref import BUILT_IN_GROUPS, object_ref
from rules.placement.ack_nodes import GPU_CORE, GPU_MEM, MODE
from rules.placement.node_affinity import REQUIRED
from rules.workloads.kinds import POD_TEMPLATE_PATHS
from rules.workloads.lists import flatten_lists

if TYPE_CHECKING:
    from rules.inventory.builder import InventoryBuilder

NODE_POOLS = ("alibabacloud.com/nodepool-id", "node.alibabacloud.com/nodepool-id")
_MOST_LABELS = 20
_MAX_VALUE = 63  # characters of the value of a label


def share_pool(spec: Mapping[str, Any]) -> str:
    """The labels of the nodes that a pod with a share requires; empty if it names no pool.

    `spec` is the pod's.
    """
    selector = as_object(spec.get("nodeSelector"))
    affinity = as_object(as_object(spec.get("affinity")).get("nodeAffinity"))
    if len(selector) > _MOST_LABELS or REQUIRED in affinity:
        return ""
    if selector.get(MODE, "core_mem") != "core_mem":
        return ""
    if MODE not in selector and selector.keys().isdisjoint(NODE_POOLS):
        return ""
    values = [as_text(value) for value in selector.values()]
    if any(len(value) > _MAX_VALUE or has_placeholder(value) for value in values):
        return ""
    return ", ".join(sorted(f"{key}: {as_text(value)}" for key, value in selector.items()))


def requests_share(spec: Mapping[str, Any], resource: str) -> bool:
    """Whether a container or an init container of a pod has `resource` in its limits."""
    lists = (as_objects(spec.get(field)) for field in ("initContainers", "containers"))
    for _, container in chain.from_iterable(lists):
        limits = as_object(as_object(container.get("resources")).get("limits"))
        amount = parse(limits[resource]) if resource in limits else None
        if isinstance(amount, Quantity) and amount.nano > 0:
            return True
    return False


def add_shares(builder: InventoryBuilder, manifest: Json, namespace: str | None) -> None:
    """Add the pods and built-in workloads in `manifest` that share cards of a known pool.

    `namespace` is where objects go that name none, if that is known.
    """
    for raw, _ in flatten_lists(as_object(manifest), ()):
        kind, group = as_text(raw.get("kind")), as_text(raw.get("apiVersion")).rpartition("/")[0]
        if group not in BUILT_IN_GROUPS or kind not in POD_TEMPLATE_PATHS:
            continue
        metadata, template = as_object(raw.get("metadata")), raw
        if metadata.get("uid"):
            continue  # it runs in a cluster, beside whatever else runs there
        for key in POD_TEMPLATE_PATHS[kind]:
            template = as_object(template.get(str(key)))
        spec = as_object(template.get("spec"))
        if requests_share(spec, GPU_MEM) and (pool := share_pool(spec)):
            owner = str(object_ref(kind, group, metadata, namespace))
            builder.shares.add(pool, owner, has_power=requests_share(spec, GPU_CORE))
