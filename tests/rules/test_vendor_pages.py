"""Tests of the whole catalog with the examples of vendors' pages, and that fixes follow the pages.

The pages are ACK's on GPU scheduling, on sharing computing power and on registered clusters, and
a lesson on GPUs in Kubernetes. The manifests are written anew after them.
"""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import FixResult, check, fix
from rules.engine.rule_set import RuleSet
from rules.finding import Action
from rules.profile.context import Context
from tests.testkit.cases import TODAY

GPU = "nvidia.com/gpu"
CONTEXT = Context(TODAY, namespace="default")


def rules(profile: str = "nvidia", more: str = "") -> RuleSet:
    text = f"apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [{profile}]\n{more}"
    return load_policy(text, "policy").rule_set()


def reported(manifest: dict[str, Any], rule_set: RuleSet) -> list[str]:
    """The rules with errors and warnings."""
    found = check(manifest, rule_set, CONTEXT).findings
    return [f.rule for f in found if f.action > Action.AUDIT]


def fixed(manifest: dict[str, Any], rule_set: RuleSet) -> FixResult:
    return fix(manifest, rule_set, CONTEXT)


def pod(limits: dict[str, Any], spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "example.com/train:1", "resources": {"limits": limits}, **more}
    full_spec = {"containers": [main], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sample"}, "spec": full_spec}


def job(limits: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "sample"}}, "spec": {**pod(limits)["spec"], **spec}}
    template["spec"]["restartPolicy"] = "Never"
    sample = {"parallelism": 1, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": sample}


def variable(value: str) -> list[dict[str, str]]:
    return [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]


def test_a_card_in_the_limits_is_the_standard_way() -> None:
    assert reported(pod({GPU: 1}), rules("ack")) == []


@pytest.mark.parametrize("value", ["all", "GPU-7f4c1f27-0000-4000-8000-5a0b1e4d2c33", "0,1"])
def test_a_variable_does_not_request_a_card(value: str) -> None:
    assert reported(pod({}, env=variable(value)), rules("ack")) == ["visible-devices-env"]
    assert fixed(pod({GPU: 1}, env=variable(value)), rules("ack")).manifest == pod({GPU: 1})


def test_an_image_that_sees_every_card_gets_void() -> None:
    result: Any = fixed(pod({}, image="nvidia/cuda:12.4.1-base-ubuntu22.04"), rules("ack"))
    assert result.manifest["spec"]["containers"][0]["env"] == variable("void")


def test_a_privileged_gpu_program() -> None:
    manifest = pod({GPU: 1}, securityContext={"privileged": True})
    assert reported(manifest, rules("ack")) == ["privileged-gpu"]


def test_two_gib_and_three_tenths_of_a_card_are_clean() -> None:
    manifest = job({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 30})
    assert check(manifest, rules("ack"), CONTEXT).findings == []


def test_computing_power_that_is_no_multiple_of_five_cannot_be_submitted() -> None:
    manifest = job({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 33})
    assert reported(manifest, rules("ack")) == ["core-percentage-step"]


def test_a_registered_cluster_needs_its_scheduler() -> None:
    named = job({"aliyun.com/gpu-mem": 3}, schedulerName="ack-co-scheduler")
    assert check(named, rules("ack-registered"), CONTEXT).findings == []
    result = fixed(job({"aliyun.com/gpu-mem": 3}), rules("ack-registered"))
    assert result.manifest == named
    assert fixed(job({"aliyun.com/gpu-mem": 3}), rules("ack")).operations == []


def test_a_pod_without_the_toleration_gets_it() -> None:
    toleration = {"key": GPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    tolerant = pod({GPU: 1}, {"tolerations": [toleration]})
    for profile in ("nvidia", "gke"):
        assert reported(tolerant, rules(profile)) == []
        result: Any = fixed(tolerant, rules(profile)).manifest
        assert result["spec"]["tolerations"] == [toleration]
    added: Any = fixed(pod({GPU: 1}), rules("nvidia")).manifest
    whatever_the_value = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    assert added["spec"]["tolerations"] == [whatever_the_value]
    # GKE adds the toleration itself.
    left: Any = fixed(pod({GPU: 1}), rules("gke")).manifest
    assert "tolerations" not in left["spec"]


def test_the_affinity_of_the_user_is_unchanged() -> None:
    expression = {"key": "gpu-type", "operator": "In", "values": ["a100", "v100"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    manifest = pod({GPU: 1}, {"affinity": {"nodeAffinity": {key: required}}})
    assert reported(manifest, rules()) == []
    result: Any = fixed(manifest, rules()).manifest
    assert result["spec"]["affinity"]["nodeAffinity"][key] == required


def test_half_a_card_does_not_exist() -> None:
    assert reported(pod({GPU: 0.5}), rules()) == ["fractional-gpu"]


def test_a_quota_on_gpu_limits_never_counts() -> None:
    hard = {f"requests.{GPU}": "8", f"limits.{GPU}": "8"}
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu-quota"}}
    quota = {**head, "spec": {"hard": hard}}
    assert reported(quota, rules()) == ["quota-inert-key"]
    opt_in_rules = rules(more="rules: {quota-inert-key: {fix: true}}\n")
    result: Any = fixed(quota, opt_in_rules).manifest
    assert f"requests.{GPU}" in result["spec"]["hard"]
