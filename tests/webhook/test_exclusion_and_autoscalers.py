"""Pods that are kept off GPU nodes can still be placed: by node groups, Karpenter and others.

Facts of the pods were read in kubernetes-sigs/kueue pkg/podset/podset.go at 0a5af05e3f74 and
pkg/controller/jobs/pod/pod_webhook.go at 001e49ba590e; kubernetes.io/docs/tasks/administer-cluster/
node-overprovisioning; karpenter.sh/docs/concepts/scheduling; and pkg.go.dev/k8s.io/autoscaler/
cluster-autoscaler/provisioningrequest/pods.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest

from cluster.why.filters import Wanted
from cluster.why.nodes import read_node
from policies.loading import load_policy
from rules.finding import Action
from rules.inventory.inventory import Inventory
from tests.testkit.admission.reviews import Admission, container, deployment, gpus, pod
from tests.testkit.cases import inventory_of
from tests.testkit.cluster_commands.gpu_objects import node

POLICY = "rules: {gpu-node-without-request: {action: deny}}\n"
PROFILE = load_policy(f"apiVersion: gpuward.io/v1\nkind: Policy\n{POLICY}", "policy").profile
PRESENT = {"nvidia.com/gpu.present": "true"}
SPOT = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
POOL, HOST = "karpenter.sh/nodepool", "kubernetes.io/hostname"
LABELS = {
    POOL: "general",
    HOST: "cpu-1",
    "karpenter.sh/capacity-type": "spot",
    "topology.kubernetes.io/zone": "eu-1a",
    "cloud.google.com/gke-nodepool": "cpu",
    "eks.amazonaws.com/nodegroup": "cpu",
    "kubernetes.azure.com/agentpool": "cpu",
    "instance-type": "on-demand",
}
CPU_NODE = node("cpu-1", labels=LABELS, spec={"taints": [{**SPOT}]})
GPU_NODE = node("gpu-1", {"nvidia.com/gpu": "8"}, labels={**LABELS, HOST: "gpu-1", **PRESENT})
PROVISIONED = {
    "autoscaling.x-k8s.io/consume-provisioning-request": "wl-ac-prov-1",
    "autoscaling.x-k8s.io/provisioning-class-name": "check-capacity.autoscaling.x-k8s.io",
}
OLDER_PROVISIONED = {
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request": "wl-ac-prov-1",
    "cluster-autoscaler.kubernetes.io/provisioning-class-name": "queued-provisioning.gke.io",
}


def requiring(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    """A node affinity that requires one of these lists of expressions."""
    listed = [{"matchExpressions": term} for term in terms]
    required = {"nodeSelectorTerms": listed}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def asking_for_cpu(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec.setdefault("tolerations", [{**SPOT}])
    made = pod(container(image="registry.k8s.io/pause:3.10", resources=requests), **spec)
    made["metadata"]["annotations"] = annotations or {}
    return made


APART = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"app": "capacity-reservation"}},
                    "topologyKey": "topology.kubernetes.io/hostname",
                },
            }
        ]
    }
}
CAPACITY = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
PODS = {
    "Karpenter, one NodePool": asking_for_cpu(
        {"karpenter.sh/do-not-disrupt": "true"},
        nodeSelector={POOL: "general"},
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "karpenter.sh/capacity-type",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
        ],
    ),
    "Karpenter, alternatives": asking_for_cpu(
        affinity=requiring(
            [{"key": POOL, "operator": "In", "values": ["batch"]}, CAPACITY],
            [{"key": POOL, "operator": "Exists"}],
        )
    ),
    "Karpenter, no GPU by its own label": asking_for_cpu(
        affinity=requiring(
            [{"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"}]
        )
    ),
    "node group of EKS": asking_for_cpu(
        affinity=requiring(
            [{"key": "eks.amazonaws.com/nodegroup", "operator": "In", "values": ["cpu", "spot"]}]
        )
    ),
    "node group of AKS, not of the system": asking_for_cpu(
        nodeSelector={"kubernetes.azure.com/agentpool": "cpu"},
        affinity=requiring(
            [{"key": "kubernetes.azure.com/mode", "operator": "NotIn", "values": ["system"]}]
        ),
    ),
    "placeholder": asking_for_cpu(priorityClassName="placeholder", affinity=APART),
    "overprovisioning": asking_for_cpu(
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        priorityClassName="overprovisioning",
        terminationGracePeriodSeconds=0,
    ),
    "ProvisioningRequest": asking_for_cpu(PROVISIONED),
    "ProvisioningRequest of older releases": asking_for_cpu(OLDER_PROVISIONED),
}


def kept_off(new: Any, inventory: Inventory | None = None) -> Any:
    """The pod as the API server stores it, which a second admission does not change."""
    admission = Admission(POLICY) if inventory is None else Admission(POLICY, inventory=inventory)
    stored = jsonpatch.apply_patch(new, admission.mutate(new).operations)
    assert not admission.mutate(stored).operations
    assert admission.validate(stored).allowed
    return stored


def obstacles(stored: Any, raw: Any) -> list[str]:
    found = Wanted(stored).obstacles(read_node(raw, None))
    return [one.message for same in found for one in same]


@pytest.mark.parametrize("name", PODS)
def test_pods_of_autoscalers_stay_schedulable(name: str) -> None:
    stored = kept_off(PODS[name])
    asked = PODS[name]["spec"]
    assert all(stored["spec"][key] == asked[key] for key in asked if key != "affinity")
    assert not obstacles(stored, CPU_NODE)
    assert obstacles(stored, GPU_NODE)


def test_a_balloon_that_holds_gpus_is_not_kept_from_them() -> None:
    balloon = pod(container(**gpus(limits="8")), priorityClassName="placeholder")
    stored = kept_off(balloon)
    assert "NotIn" not in str(stored["spec"].get("affinity", ""))
    assert not obstacles(stored, GPU_NODE)


def gated(gate: str) -> Any:
    made = asking_for_cpu(schedulingGates=[{"name": gate}], tolerations=[])
    made["metadata"]["labels"] = {
        "kueue.x-k8s.io/managed": "true",
        "kueue.x-k8s.io/queue-name": "team",
    }
    made["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    return made


@pytest.mark.parametrize(
    ("gate", "selector"),
    [
        ("kueue.x-k8s.io/admission", {"instance-type": "on-demand"}),
        ("kueue.x-k8s.io/admission", {"cloud.google.com/gke-nodepool": "cpu"}),
        ("kueue.x-k8s.io/topology", {HOST: "cpu-1"}),
    ],
)
def test_kueue_sends_a_gated_pod_to_a_flavor_without_gpus(
    gate: str, selector: dict[str, str]
) -> None:
    """It adds what the flavor says in an update, and takes the gate away."""
    old = kept_off(gated(gate))
    new = copy.deepcopy(old)
    new["spec"]["nodeSelector"] = selector
    new["spec"]["tolerations"].append({**SPOT})
    new["spec"]["schedulingGates"] = []
    new["metadata"]["annotations"] |= PROVISIONED
    admission = Admission(POLICY)
    assert not admission.mutate(new, old).operations
    decision = admission.validate(new, old)
    assert decision.allowed
    assert not decision.warnings
    assert not obstacles(new, CPU_NODE)
    assert obstacles(new, GPU_NODE)


def test_kueue_cannot_send_it_to_a_flavor_that_tolerates_gpu_nodes() -> None:
    """The affinity would keep it from these nodes anyway: it is said at once."""
    old = kept_off(gated("kueue.x-k8s.io/admission"))
    new = copy.deepcopy(old)
    new["spec"]["tolerations"].append({"key": "nvidia.com/gpu", "operator": "Exists"})
    refused = Admission(POLICY).validate(new, old)
    assert not refused.allowed
    assert "asks for no GPU and tolerates the taint" in refused.message


# What is said if no node is left.

LEFT = "none of today's nodes is left for the pod, which stays Pending until there is another node"
WAYS_OUT = "ask for a GPU, or ask whoever keeps the policy for an exception"


def known(*nodes: Any, has_all: bool = True) -> Inventory:
    return inventory_of(nodes, PROFILE, has_all_nodes=has_all)


def told(new: Any, inventory: Inventory, mode: Action = Action.DENY) -> str:
    """The warnings about the fix."""
    decision = Admission(POLICY, mode, inventory).mutate(new)
    assert decision.allowed
    return "\n".join(each for each in decision.warnings if "exclude nodes" in each)


@pytest.mark.parametrize("mode", [Action.DENY, Action.WARN])
def test_a_pod_without_a_node_is_told_so_with_both_ways_out(mode: Action) -> None:
    warning = told(asking_for_cpu(), known(GPU_NODE), mode)
    assert f"{LEFT}; {WAYS_OUT}" in warning
    assert len(warning.encode()) < 1000  # else the API server cuts it


def test_labels_decide_which_nodes_it_had() -> None:
    """Of a T4 pool that has GPUs no node is left, whatever else the cluster has."""
    family = {"nvidia.com/gpu.family": "turing"}
    t4 = node("t4", {"nvidia.com/gpu": "1"}, labels={**PRESENT, **family})
    nodes = known(t4, CPU_NODE)
    not_ampere = [{"key": "nvidia.com/gpu.family", "operator": "NotIn", "values": ["ampere"]}]
    assert "today's nodes" not in told(asking_for_cpu(), nodes)
    assert "today's nodes" not in told(asking_for_cpu(affinity=requiring(not_ampere)), nodes)
    assert "today's nodes" in told(asking_for_cpu(affinity=requiring(not_ampere)), known(t4))


@pytest.mark.parametrize(
    "inventory",
    [known(), known(GPU_NODE, CPU_NODE), known(node("odd", {"nvidia.com/gpu": "1"}))],
    ids=["nothing known", "another node", "a GPU node without the label"],
)
def test_nothing_is_said_where_a_node_may_be_left(inventory: Inventory) -> None:
    warning = told(asking_for_cpu(), inventory)
    assert warning.endswith("exclude nodes with nvidia.com/gpu.present=true")


def test_it_is_not_surer_than_what_is_known_of_nodes_that_do_not_exist_yet() -> None:
    """Karpenter, or an autoscaler, may add one of a pool that has none today."""
    of_empty_pool = asking_for_cpu(nodeSelector={POOL: "batch"})
    assert LEFT in told(of_empty_pool, known(GPU_NODE))
    assert "today's nodes" not in told(of_empty_pool, known(GPU_NODE, CPU_NODE))
    some = told(asking_for_cpu(), known(GPU_NODE, has_all=False))
    assert "none of the known nodes is left" in some


def test_a_workload_is_told_so_before_its_pods_wait() -> None:
    made = deployment(container(image="nginx:1.27"))
    warnings = Admission(POLICY, inventory=known(GPU_NODE)).mutate(made).warnings
    assert any("none of today's nodes is left" in each and WAYS_OUT in each for each in warnings)
    fixing = Admission(f"{POLICY}workloads: fix\n", inventory=known(GPU_NODE)).mutate(made)
    assert fixing.operations
    assert any(LEFT in each for each in fixing.warnings)
