"""Labels and taints are found in every kind of object that makes nodes, where its definition says.

The definitions are those that `rules.workloads.object_kinds` names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from policies.loading import default_policy, load_policy
from rules.base.json_values import Path, find_value
from rules.engine.fixing import check
from rules.profile.context import Context
from rules.workloads.object_kinds import NODE_POOL_KINDS
from tests.testkit.cases import TODAY

RULES = default_policy().rule_set()
POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\nextends: [strict]\n"
STRICT = load_policy(POLICY, "policy").rule_set()
LABEL, MISSPELT = "nvidia.com/mig.strategy", "mixd"
LABELS = {LABEL: MISSPELT}
ARGUMENTS = {"kubeletExtraArgs": {"node-labels": f"team=a,{LABEL}={MISSPELT}"}}
JOIN = {"joinConfiguration": {"nodeRegistration": ARGUMENTS}}
PAIRS = [{"key": "team", "value": "a"}, {"key": LABEL, "value": MISSPELT}]
CAPI = "infrastructure.cluster.x-k8s.io"
POOLS: list[tuple[str, str, dict[str, Any]]] = [
    ("karpenter.sh", "NodePool", {"spec": {"template": {"metadata": {"labels": LABELS}}}}),
    ("cloud.google.com", "ComputeClass", {"spec": {"nodePoolConfig": {"nodeLabels": LABELS}}}),
    ("kops.k8s.io", "InstanceGroup", {"spec": {"nodeLabels": LABELS}}),
    (
        "core.gardener.cloud",
        "Shoot",
        {"spec": {"provider": {"workers": [{"name": "a"}, {"name": "b", "labels": LABELS}]}}},
    ),
    ("eksctl.io", "ClusterConfig", {"managedNodeGroups": [{"name": "a"}, {"labels": LABELS}]}),
    ("eksctl.io", "ClusterConfig", {"nodeGroups": [{"labels": LABELS}]}),
    ("eks.services.k8s.aws", "Nodegroup", {"spec": {"labels": LABELS}}),
    (
        "container.cnrm.cloud.google.com",
        "ContainerNodePool",
        {"spec": {"nodeConfig": {"labels": LABELS}}},
    ),
    (
        "containerservice.azure.com",
        "ManagedCluster",
        {"spec": {"agentPoolProfiles": [{"nodeLabels": LABELS}]}},
    ),
    ("containerservice.azure.com", "ManagedClustersAgentPool", {"spec": {"nodeLabels": LABELS}}),
    (
        "ack.alibabacloud.crossplane.io",
        "KubernetesNodePool",
        {"spec": {"forProvider": {"labels": PAIRS}}},
    ),
    (
        "ack.alibabacloud.crossplane.io",
        "KubernetesNodePool",
        {"spec": {"initProvider": {"labels": PAIRS}}},
    ),
    ("kubeadm.k8s.io", "InitConfiguration", {"nodeRegistration": ARGUMENTS}),
    ("kubeadm.k8s.io", "JoinConfiguration", {"nodeRegistration": ARGUMENTS}),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfig", {"spec": JOIN}),
    (
        "bootstrap.cluster.x-k8s.io",
        "KubeadmConfigTemplate",
        {"spec": {"template": {"spec": JOIN}}},
    ),
    (CAPI, "AWSManagedMachinePool", {"spec": {"labels": LABELS}}),
    (CAPI, "AzureManagedMachinePool", {"spec": {"nodeLabels": LABELS}}),
    (
        CAPI,
        "AzureASOManagedMachinePool",
        {"spec": {"resources": [{"spec": {"nodeLabels": LABELS}}]}},
    ),
    (CAPI, "GCPManagedMachinePool", {"spec": {"kubernetesLabels": LABELS}}),
]


GPU = {"nvidia.com/gpu.present": "true"}
GPU_ARGUMENTS = {"kubeletExtraArgs": {"node-labels": "nvidia.com/gpu.present=true"}}
KEY = "nvidia.com/gpu"
KUBERNETES = [{"key": KEY, "effect": "NoSchedule"}]
CAPI_OF_AWS = [{"key": KEY, "value": "a", "effect": "no-schedule"}]
TEXTS = [f"{KEY}=a:NoSchedule"]
# Where the taints of nodes are, beside a label of GPU nodes, and one that keeps pods off.
TAINTS: list[tuple[str, str, Callable[[Any], dict[str, Any]], Any]] = [
    (
        "karpenter.sh",
        "NodePool",
        lambda t: {"spec": {"template": {"metadata": {"labels": GPU}, "spec": {"taints": t}}}},
        KUBERNETES,
    ),
    (
        "eksctl.io",
        "ClusterConfig",
        lambda t: {"managedNodeGroups": [{"labels": GPU, "taints": t}]},
        KUBERNETES,
    ),
    (
        "eksctl.io",
        "ClusterConfig",
        lambda t: {"nodeGroups": [{"labels": GPU, "taints": t}]},
        {KEY: "a:NoSchedule"},
    ),
    (
        "eks.services.k8s.aws",
        "Nodegroup",
        lambda t: {"spec": {"labels": GPU, "taints": t}},
        [{"key": KEY, "value": "a", "effect": "NO_SCHEDULE"}],
    ),
    (
        "containerservice.azure.com",
        "ManagedCluster",
        lambda t: {"spec": {"agentPoolProfiles": [{"nodeLabels": GPU, "nodeTaints": t}]}},
        TEXTS,
    ),
    (
        "containerservice.azure.com",
        "ManagedClustersAgentPool",
        lambda t: {"spec": {"nodeLabels": GPU, "nodeTaints": t}},
        TEXTS,
    ),
    (
        "kubeadm.k8s.io",
        "JoinConfiguration",
        lambda t: {"nodeRegistration": {**GPU_ARGUMENTS, "taints": t}},
        KUBERNETES,
    ),
    (
        "core.gardener.cloud",
        "Shoot",
        lambda t: {"spec": {"provider": {"workers": [{"labels": GPU, "taints": t}]}}},
        KUBERNETES,
    ),
    (CAPI, "AWSManagedMachinePool", lambda t: {"spec": {"labels": GPU, "taints": t}}, CAPI_OF_AWS),
    (
        CAPI,
        "AzureManagedMachinePool",
        lambda t: {"spec": {"nodeLabels": GPU, "taints": t}},
        KUBERNETES,
    ),
    (
        CAPI,
        "AzureASOManagedMachinePool",
        lambda t: {"spec": {"resources": [{"spec": {"nodeLabels": GPU, "nodeTaints": t}}]}},
        TEXTS,
    ),
]


# Fields that name a card of Google Cloud.
CARD = "nvidia-t4"
CARDS: list[tuple[str, str, dict[str, Any]]] = [
    ("cloud.google.com", "ComputeClass", {"spec": {"priorities": [{"gpu": {"type": CARD}}]}}),
    (
        "container.cnrm.cloud.google.com",
        "ContainerNodePool",
        {"spec": {"nodeConfig": {"guestAccelerator": [{"type": CARD}]}}},
    ),
    (
        "kops.k8s.io",
        "InstanceGroup",
        {"spec": {"guestAccelerators": [{"acceleratorType": CARD}]}},
    ),
    (
        "core.gardener.cloud",
        "Shoot",
        {
            "spec": {
                "provider": {
                    "workers": [{}, {"providerConfig": {"gpu": {"acceleratorType": CARD}}}]
                }
            }
        },
    ),
    (
        CAPI,
        "GCPMachineTemplate",
        {"spec": {"template": {"spec": {"guestAccelerators": [{"type": CARD}]}}}},
    ),
    (CAPI, "GCPMachinePool", {"spec": {"guestAccelerators": [{}, {"type": CARD}]}}),
]


def paths_of_findings(
    group: str, kind: str, body: dict[str, Any], rule: str = "unknown-node-mode"
) -> list[Path]:
    manifest = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "x"}, **body}
    result = check(manifest, RULES if rule == "unknown-node-mode" else STRICT, Context(TODAY))
    assert not result.failures
    assert not result.malformed_fields
    return [f.path for f in result.findings if f.rule == rule]


@pytest.mark.parametrize(("group", "kind", "body"), POOLS)
def test_a_misspelt_label_is_found(group: str, kind: str, body: dict[str, Any]) -> None:
    (path,) = paths_of_findings(group, kind, body)
    assert MISSPELT in str(find_value(body, path))


@pytest.mark.parametrize(("group", "kind", "body"), CARDS)
def test_a_name_that_no_card_has_is_found(group: str, kind: str, body: dict[str, Any]) -> None:
    (path,) = paths_of_findings(group, kind, body)
    assert find_value(body, path) == CARD


@pytest.mark.parametrize(("group", "kind", "make", "taint"), TAINTS)
def test_a_missing_taint_is_found_where_it_belongs(
    group: str, kind: str, make: Callable[[Any], dict[str, Any]], taint: Any
) -> None:
    rule = "gpu-taint-missing"
    (path,) = paths_of_findings(group, kind, make([]), rule)
    body = make(taint)
    assert find_value(body, path) == taint
    assert paths_of_findings(group, kind, body, rule) == []


def test_every_kind_is_tried() -> None:
    tried = {(group, kind) for group, kind, _ in (*POOLS, *CARDS)}
    assert tried == NODE_POOL_KINDS.keys()
