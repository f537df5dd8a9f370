"""Tests of the node labels of each cloud, and of the expressions that select GPU nodes."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from rules.profile.profile import Profile, merge_profiles
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY
from tests.testkit.match_conditions.padded_pods import node_affinity

MACHINES = "node.kubernetes.io/instance-type"
DRIVER = "cloud.google.com/gke-gpu-driver-version"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (MACHINES, "p5.48xlarge", True),
        ("beta.kubernetes.io/instance-type", "g6e.xlarge", True),
        (MACHINES, "trn2u.48xlarge", True),
        (MACHINES, "dl2q.24xlarge", True),
        (MACHINES, "m7i.large", False),
        ("karpenter.k8s.aws/instance-family", "p6-b200", True),
        ("karpenter.k8s.aws/instance-family", "g4dn", True),
        ("eks.amazonaws.com/instance-family", "c7i", False),
        ("karpenter.k8s.aws/instance-category", "g", True),
        ("eks.amazonaws.com/instance-category", "m", False),
        (MACHINES, "Standard_NC24ads_A100_v4", True),
        (MACHINES, "Standard_NP10s", False),
        ("beta.kubernetes.io/instance-type", "Standard_D8s_v5", False),
        ("karpenter.azure.com/sku-family", "N", True),
        ("karpenter.azure.com/sku-family", "D", False),
        ("karpenter.azure.com/sku-gpu-name", "A100", True),
        ("karpenter.azure.com/sku-gpu-count", "8", True),
        ("karpenter.azure.com/sku-gpu-count", "0", False),
        (MACHINES, "a3-highgpu-8g", True),
        (MACHINES, "a4x-maxgpu-4g-metal", True),
        (MACHINES, "g2-standard-96", True),
        (MACHINES, "ct5lp-hightpu-4t", True),
        (MACHINES, "c4-standard-8", False),
        (MACHINES, "g6-standard-2", False),  # a machine without a GPU in another cloud
        ("cloud.google.com/machine-family", "a3", True),
        ("cloud.google.com/machine-family", "e2", False),
        (MACHINES, "gd-8xh100ib-i128", True),
        ("node.coreweave.cloud/type", "gb200-4x-l", True),
        ("node.coreweave.cloud/type", "cd-gp-a192-genoa", False),
        ("gpu.nvidia.com/class", "H100_NVLINK_80GB", True),
        ("gpu.nvidia.com/count", "0", False),
        (MACHINES, "gpu-h100x8-640gb", True),
        ("doks.digitalocean.com/gpu-brand", "amd", True),
        (MACHINES, "s-2vcpu-4gb", False),
        (MACHINES, "gx3.16x80.l4", True),
        (MACHINES, "bx2.4x16", False),
        ("ibm-cloud.kubernetes.io/gpu-enabled", "true", True),
        ("ibm-cloud.kubernetes.io/gpu-enabled", "false", False),
        (MACHINES, "VM.GPU.A10.1", True),
        (MACHINES, "VM.Standard.E5.Flex", False),
        (MACHINES, "ecs.gn7i-c8g1.2xlarge", True),
        (MACHINES, "ecs.ebmgn8v.48xlarge", True),
        (MACHINES, "ecs.g7.xlarge", False),
        ("accelerator", "nvidia-tesla-v100", True),
        ("accelerator", "example-gpu-x100", True),
        ("accelerator", "none", False),
        ("gpu-type", "a100", True),
        ("gpu-memory", "80Gi", True),
        ("cloud.google.com/gke-gpu", "true", True),
        ("cloud.google.com/gke-gpu", "false", False),
        ("cloud.google.com/gke-accelerator-count", "8", True),
        ("cloud.google.com/gke-gpu-sharing-strategy", "mps", True),
        ("cloud.google.com/compute-class", "Accelerator", True),
        ("cloud.google.com/compute-class", "Balanced", False),
        ("feature.node.kubernetes.io/pci-1002.present", "true", True),
        ("feature.node.kubernetes.io/pci-1200_1002.present", "true", True),
        ("feature.node.kubernetes.io/pci-1200_1da3.present", "true", True),
        ("feature.node.kubernetes.io/pci-1200_1eff.present", "true", True),
        ("feature.node.kubernetes.io/pci-1200_1ed2.present", "true", True),
        ("feature.node.kubernetes.io/pci-0380_8086.present", "true", True),
        ("feature.node.kubernetes.io/pci-8086.present", "true", False),
        ("feature.node.kubernetes.io/pci-1200_10ee.present", "true", False),  # an FPGA
        ("feature.node.kubernetes.io/aws-neuron", "true", True),
        ("rebellions.ai/npu.present", "true", True),
        ("rebellions.ai/npu.deploy.driver", "false", False),
        ("furiosa.ai/npu.product", "rngd", True),
        ("karpenter.k8s.gcp/instance-gpu-count", "1", True),
        ("karpenter.k8s.oracle/instance-gpu", "0", False),
        ("node.kubernetes.ovhcloud.com/gpu", "true", True),
        ("skypilot.co/accelerator", "h100", True),
        ("feature.node.kubernetes.io/pci-1ed2.present", "true", True),
        ("alpha.furiosa.ai/npu.family", "warboy", True),
        ("metax-tech.com/gpu.installed", "true", True),
        ("metax-tech.com/gpu.installed", "false", False),
        ("metax-tech.com/gpu.product", "MXC500", True),
        ("hygon.com/dcu", "true", True),
        ("hygon.com/dcu.name", "K100_AI", True),
        ("node.kubernetes.io/npu.chip.name", "910B4", True),
        ("accelerator/huawei-npu", "ascend-1980", True),
        ("node.coreweave.cloud/class", "gpu", True),
        ("node.coreweave.cloud/class", "cpu", False),
        ("nebius.com/gpu", "true", True),
        ("nebius.com/gpu", "H100", True),
        ("nebius.com/gpu", "false", False),
        ("nebius.com/gpu-name", "B200", True),
        (MACHINES, "ml.p5.48xlarge", True),
        (MACHINES, "ml.g5.8xlarge", True),
        (MACHINES, "ml.trn1.32xlarge", True),
        (MACHINES, "ml.m5.xlarge", False),
        (MACHINES, "ct6e-standard-4t", True),
        (MACHINES, "tpu7x-standard-4t", True),
        ("cloud.google.com/machine-family", "ct6e", True),
        ("cloud.google.com/machine-family", "c4", False),
    ],
)
def test_machines_with_gpus_are_known_of_every_cloud(
    key: str, value: str, expected: object
) -> None:
    assert default_policy(["nvidia"]).profile.is_gpu_label(key, value) is expected


def test_values_of_a_label_that_clouds_share_are_merged() -> None:
    some, more, any_will_do = (
        Profile(name, node_labels={"l": values})
        for name, values in (("a", ("x",)), ("b", ("y", "x")), ("c", ()))
    )
    assert merge_profiles([some, more], []).node_labels == {"l": ("x", "y")}
    assert merge_profiles([Profile("own")], [some, more]).node_labels == {"l": ("x", "y")}
    assert merge_profiles([some, any_will_do, more], []).node_labels == {"l": ()}


COUNT, CATEGORY = "nvidia.com/gpu.count", "karpenter.k8s.aws/instance-category"


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        (COUNT, "Lt", ["1"], False),
        (COUNT, "Lt", ["0"], False),
        (COUNT, "Lt", ["-3"], False),
        (COUNT, "Lt", ["2"], True),
        (COUNT, "Lt", ["10"], True),
        (COUNT, "Lt", ["$CARDS"], True),
        (COUNT, "Lt", [], True),
        (COUNT, "Lt", [1], True),
        (COUNT, "Gt", ["0"], True),
        (COUNT, "Exists", [], True),
        (COUNT, "DoesNotExist", [], False),
        (COUNT, "NotIn", ["1"], False),
        # Every node has a category, and on GKE one of several classes.
        (CATEGORY, "Exists", [], False),
        ("cloud.google.com/compute-class", "Exists", [], False),
        ("cloud.google.com/gke-gpu", "Exists", [], True),
        (CATEGORY, "In", ["m", "c"], False),
        (CATEGORY, "In", ["m", "g"], True),
    ],
)
def test_an_affinity_expression_selects_gpu_nodes(
    key: str, operator: str, values: list[Any], expected: object
) -> None:
    expression = {"key": key, "operator": operator, "values": values}
    manifest = pod(container(env=[]), affinity=node_affinity([[expression]]))
    rules = default_policy(["nvidia"]).rule_set()
    found = {f.rule for f in check(manifest, rules, Context(TODAY, "team-a")).findings}
    assert ("image-default-all" in found) is expected


def test_a_number_that_a_pod_selects_is_shown_as_it_is_written() -> None:
    """API servers refuse it, in words that do not say which values there are."""
    raw = pod(container(), nodeSelector={DRIVER: 535})
    outcome = check(raw, default_policy().rule_set(), Context(today=TODAY))
    said = [f.message for f in outcome.findings if f.rule == "unknown-node-label-value"]
    assert said == [f'the pod selects nodes with {DRIVER}: "535", a value that no node has']
