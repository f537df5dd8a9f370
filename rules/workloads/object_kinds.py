"""The one table of the kinds that rules are about, apart from pods.

A built-in workload is a subject beside its pod without being listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_patch import Path
from rules.objects.device_claim import GROUP as CLAIM_GROUP
from rules.traits.bits import (
    DEVICE_CLAIM,
    KUBELET_CONFIG,
    LIMIT_RANGE,
    NODE,
    NODE_POOL,
    QUOTA,
    WEBHOOK_CONFIGURATION,
)


class ObjectKind(NamedTuple):
    """The trait of a kind, and the types of the fields that rules read, as in `field_types`.

    - `name`: only objects are subjects whose name begins with it.
    - `node_labels`: the paths of the labels of nodes; `*` stands for every element of a list.
    - `kubelet_arguments`: the paths of the kubelet's arguments, of which `node-labels` is one.
    """

    trait: int
    fields: Mapping[str, Any]
    name: str = ""
    node_labels: tuple[Path, ...] = ()
    kubelet_arguments: tuple[Path, ...] = ()


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

# kubernetes/kubernetes cmd/kubeadm/app/apis/kubeadm: a map of arguments, and since v1beta4 a list.
_REGISTRATION = ("nodeRegistration", "kubeletExtraArgs")
_JOIN, _INIT = ("joinConfiguration", *_REGISTRATION), ("initConfiguration", *_REGISTRATION)
_TEMPLATE = ("spec", "template", "spec")
_EKS_GROUPS: Mapping[str, Any] = {"labels": {}}

# Group and kind -> what rules are about.
OBJECT_KINDS: Mapping[tuple[str, str], ObjectKind] = {
    ("", "Node"): ObjectKind(NODE, _NODE, node_labels=(("metadata", "labels"),)),
    ("karpenter.sh", "NodePool"): ObjectKind(
        NODE_POOL,
        {"spec": {"template": {"metadata": {"labels": {}}}}},
        node_labels=(("spec", "template", "metadata", "labels"),),
    ),
    ("eksctl.io", "ClusterConfig"): ObjectKind(
        NODE_POOL,
        {"managedNodeGroups": [_EKS_GROUPS], "nodeGroups": [_EKS_GROUPS]},
        node_labels=(("managedNodeGroups", "*", "labels"), ("nodeGroups", "*", "labels")),
    ),
    ("kubeadm.k8s.io", "InitConfiguration"): ObjectKind(
        NODE_POOL, {"nodeRegistration": {}}, kubelet_arguments=(_REGISTRATION,)
    ),
    ("kubeadm.k8s.io", "JoinConfiguration"): ObjectKind(
        NODE_POOL, {"nodeRegistration": {}}, kubelet_arguments=(_REGISTRATION,)
    ),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfig"): ObjectKind(
        NODE_POOL, {"spec": {}}, kubelet_arguments=(("spec", *_JOIN), ("spec", *_INIT))
    ),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate"): ObjectKind(
        NODE_POOL, {"spec": {}}, kubelet_arguments=((*_TEMPLATE, *_JOIN), (*_TEMPLATE, *_INIT))
    ),
    ("", "ResourceQuota"): ObjectKind(QUOTA, {"spec": {"hard": {}}}),
    (CLAIM_GROUP, "ResourceClaim"): ObjectKind(DEVICE_CLAIM, {"spec": _CLAIM}),
    (CLAIM_GROUP, "ResourceClaimTemplate"): ObjectKind(DEVICE_CLAIM, {"spec": {"spec": _CLAIM}}),
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
