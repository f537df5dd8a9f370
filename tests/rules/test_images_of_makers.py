"""A privileged container is reported by what its image's reference says of accelerators."""

from __future__ import annotations

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY

RULES = default_policy().rule_set()
DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "platform"),
    [
        ("rocm/pytorch:latest", "ROCm"),
        ("mirror.example.com:5000/rocm/pytorch", "ROCm"),
        ("ROCM-mirror.example.com/team/app:rocm6.4-ubuntu", "ROCm"),
        ("team/pytorch-rocm", "ROCm"),
        ("vault.habana.ai:443/docker/pytorch:1", "Gaudi"),
        ("team/app:1-hpu", "Gaudi"),
        ("team/app_npu.v2:1", "NPUs"),
        ("ascend/vllm:1" + DIGEST, "Ascend"),
        ("team/vllm-rbln:1" + DIGEST, "RBLN"),
        ("us-central1-docker.pkg.dev/tpu-pytorch-releases/docker/xla:r2.7.0_3.10_tpuvm", "TPUs"),
        ("us-central1-docker.pkg.dev/tpu-pytorch-releases/docker/xla:r2.7.0_3.10_cuda_12.6", ""),
        ("quay.io/vllm/vllm-neuron:0.11", "Neuron"),
        ("example.com/neuron:1", ""),
        ("ascendai/pytorch:2.2.0", "Ascend"),
        ("registry.iluvatar.com.cn:10443/saas/mr-bi150-4.3.0-base:v1.0", "CoreX"),
        # A digest overrides the tag, so the tag says nothing.
        ("team/app:rocm6.4" + DIGEST, ""),
        ("host-npu.example.com:5000/team/app:1", ""),
        ("rocm.example.com/team/app:1", ""),
        ("team/input:1", ""),
        ("team/npus:1", ""),
        ("team/rocm/../app" * 100, ""),
    ],
)
def test_an_image_of_any_maker_is_known_by_its_reference(image: str, platform: str) -> None:
    manifest = pod(container(image=image, securityContext={"privileged": True}))
    found = check(manifest, RULES, Context(TODAY, "team-a", "alice", "CREATE")).findings
    said = [f.message for f in found if f.rule == "privileged-gpu"]
    assert [f"which uses {platform}:" in message for message in said] == [True] * bool(platform)


@pytest.mark.parametrize(
    ("image", "is_reported"),
    [
        ("rocm/k8s-device-plugin:1.2", False),
        ("rocm/device-metrics-exporter", False),
        ("rocm/pytorch:exporter", True),
        ("rocm/pytorch:1-plugin", True),
        ("rocm/plugins:1", True),
    ],
)
def test_an_agent_of_a_maker_is_known_by_the_name_of_its_image(
    image: str, *, is_reported: bool
) -> None:
    manifest = pod(container(image=image, securityContext={"privileged": True}))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}
    manifest["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    user = "system:serviceaccount:kube-system:daemon-set-controller"
    found = check(manifest, RULES, Context(TODAY, "team-a", user, "CREATE")).findings
    assert ("privileged-gpu" in {f.rule for f in found}) == is_reported
