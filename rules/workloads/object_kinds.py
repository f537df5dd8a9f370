"""The one table of the kinds that rules are about, apart from pods.

A built-in workload is a subject beside its pod without being listed here.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.traits import (
    CLUSTER_QUEUE,
    DEVICE_CLAIM,
    KUBELET_CONFIG,
    LIMIT_RANGE,
    NODE,
    NODE_POOL,
    QUOTA,
    RESOURCE_FLAVOR,
    WEBHOOK_CONFIGURATION,
)
from rules.objects.kubernetes_objects import GROUP as CLAIM_GROUP
from rules.workloads.node_pool_kinds import NODE_POOL_KINDS, NodeFields, field_types


class ObjectKind(NamedTuple):
    """The trait of a kind, and the types of the fields that rules read, as in `field_types`.

    - `name`: only objects are subjects whose name begins with it.
    - `nodes`: where objects of this kind describe nodes.
    """

    trait: int
    fields: Mapping[str, Any]
    name: str = ""
    nodes: tuple[NodeFields, ...] = ()


_NODE: Mapping[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {"taints": [{}]},
    "status": {"capacity": {}, "allocatable": {}, "nodeInfo": {}},
}
_LIMIT_RANGE: Mapping[str, Any] = {
    "spec": {
        "limits": [
            {"default": {}, "defaultRequest": {}, "max": {}, "min": {}, "maxLimitRequestRatio": {}}
        ]
    }
}
_CLAIM: Mapping[str, Any] = {
    "devices": {
        "requests": [{"exactly": {}, "firstAvailable": [{}]}],
        "config": [{"opaque": {"parameters": {}}}],
    }
}
_WEBHOOKS: Mapping[str, Any] = {
    "webhooks": [
        {
            "clientConfig": {"service": {}},
            "rules": [{}],
            "namespaceSelector": {"matchLabels": {}, "matchExpressions": [{}]},
            "objectSelector": {},
            "matchConditions": [{}],
        }
    ]
}
_KUEUE = "kueue.x-k8s.io"
_QUEUE: Mapping[str, Any] = {"spec": {"resourceGroups": [{"flavors": [{"resources": [{}]}]}]}}
_FLAVOR = NodeFields(("spec",), labels=("nodeLabels",))

# Group and kind -> what rules are about.
OBJECT_KINDS: Mapping[tuple[str, str], ObjectKind] = {
    ("", "Node"): ObjectKind(
        NODE,
        _NODE,
        nodes=(NodeFields((), labels=("metadata", "labels"), taints=("spec", "taints")),),
    ),
    **{
        kind: ObjectKind(NODE_POOL, field_types(fields), nodes=fields)
        for kind, fields in NODE_POOL_KINDS.items()
    },
    ("", "ResourceQuota"): ObjectKind(QUOTA, {"spec": {"hard": {}}}),
    (CLAIM_GROUP, "ResourceClaim"): ObjectKind(DEVICE_CLAIM, {"spec": _CLAIM}),
    (CLAIM_GROUP, "ResourceClaimTemplate"): ObjectKind(DEVICE_CLAIM, {"spec": {"spec": _CLAIM}}),
    (_KUEUE, "ClusterQueue"): ObjectKind(CLUSTER_QUEUE, _QUEUE),
    (_KUEUE, "Cohort"): ObjectKind(CLUSTER_QUEUE, _QUEUE),
    (_KUEUE, "ResourceFlavor"): ObjectKind(
        RESOURCE_FLAVOR, {"spec": {"nodeLabels": {}}}, nodes=(_FLAVOR,)
    ),
    ("", "LimitRange"): ObjectKind(LIMIT_RANGE, _LIMIT_RANGE),
    ("kubelet.config.k8s.io", "KubeletConfiguration"): ObjectKind(KUBELET_CONFIG, {}),
    # kubeadm keeps the configuration of the kubelets here.
    ("", "ConfigMap"): ObjectKind(KUBELET_CONFIG, {"data": {}}, name="kubelet-config"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): ObjectKind(
        WEBHOOK_CONFIGURATION, _WEBHOOKS
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): ObjectKind(
        WEBHOOK_CONFIGURATION, _WEBHOOKS
    ),
}
