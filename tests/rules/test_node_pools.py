"""Labels are found in every kind of object that makes nodes, where its definition has them.

The definitions are those that `rules.workloads.node_pool_kinds` names.
"""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import default_policy
from rules.base.json_patch import Path, find_value
from rules.engine.fixing import check
from rules.profile.context import Context
from rules.workloads.node_pool_kinds import NODE_POOL_KINDS
from tests.testkit.cases import TODAY

RULES = default_policy().rule_set()
LABEL, MISSPELT = "nvidia.com/mig.strategy", "mixd"
LABELS = {LABEL: MISSPELT}
ARGUMENTS = {"kubeletExtraArgs": {"node-labels": f"team=a,{LABEL}={MISSPELT}"}}
JOIN = {"joinConfiguration": {"nodeRegistration": ARGUMENTS}}
PAIRS = [{"key": "team", "value": "a"}, {"key": LABEL, "value": MISSPELT}]
CAPI = "infrastructure.cluster.x-k8s.io"
POOLS: list[tuple[str, str, dict[str, Any]]] = [
    ("karpenter.sh", "NodePool", {"spec": {"template": {"metadata": {"labels": LABELS}}}}),
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


def paths_of_findings(group: str, kind: str, body: dict[str, Any]) -> list[Path]:
    manifest = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "x"}, **body}
    result = check(manifest, RULES, Context(TODAY))
    assert not result.failures
    assert not result.malformed_fields
    return [f.path for f in result.findings if f.rule == "unknown-node-mode"]


@pytest.mark.parametrize(("group", "kind", "body"), POOLS)
def test_a_misspelt_label_is_found(group: str, kind: str, body: dict[str, Any]) -> None:
    (path,) = paths_of_findings(group, kind, body)
    assert MISSPELT in str(find_value(body, path))


def test_every_kind_is_tried() -> None:
    assert {(group, kind) for group, kind, _ in POOLS} == NODE_POOL_KINDS.keys()
