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


# Each manifest of the pages as it should be, and mistyped in two ways.

MEM, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
MODE = "ack.node.gpu.schedule"
AFFINITY = {"key": "gpu-type", "operator": "In", "values": ["a100", "v100"]}
TOLERATION = {"key": GPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"}
REGISTERED = {"schedulerName": "ack-co-scheduler"}


def affine(**changes: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{**AFFINITY, **changes}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod({GPU: 1}, {"affinity": {"nodeAffinity": required}})


def tolerant(**changes: Any) -> dict[str, Any]:
    return pod({GPU: 1}, {"tolerations": [{**TOLERATION, **changes}]})


def shared_node(mode: str = "core_mem", memory: str = "60", percent: str = "400") -> dict[str, Any]:
    labels = {MODE: mode, "ack.node.gpu.placement": "binpack"}
    offered = {CORE: percent, "aliyun.com/gpu-count": "4", MEM: memory}
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}}
    spec = {"providerID": "cn-shanghai.i-n"}
    return {**head, "spec": spec, "status": {"allocatable": offered, "capacity": offered}}


def device_plugin(**spec: Any) -> dict[str, Any]:
    folder = "/var/lib/kubelet/device-plugins"
    volumes = [{"name": "plugins", "hostPath": {"path": folder}}]
    mounts = [{"name": "plugins", "mountPath": folder}]
    main = {"name": "plugin", "image": "example.com/gpushare-plugin:1", "volumeMounts": mounts}
    template = {
        "metadata": {"labels": {"app": "plugin"}},
        "spec": {"containers": [main], "volumes": volumes, **spec},
    }
    metadata = {"name": "gpushare-device-plugin-ds", "namespace": "kube-system"}
    head = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    selector = {"matchLabels": {"app": "plugin"}}
    return {**head, "spec": {"selector": selector, "template": template}}


def quota(resource: str, amount: str) -> dict[str, Any]:
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu-quota"}}
    return {**head, "spec": {"hard": {f"requests.{resource}": amount}}}


CRITICAL = "system-node-critical"
REPLAYED: dict[str, tuple[Any, ...]] = {
    "a card": ("ack", pod({GPU: 1})),
    "a card by its plural": ("ack", pod({f"{GPU}s": 1}), "unknown-gpu-resource"),
    "a card of another maker's domain": ("ack", pod({"nvida.com/gpu": 1}), "unknown-gpu-resource"),
    "memory and power": ("ack", job({MEM: 2, CORE: 30})),
    "power between the steps": ("ack", job({MEM: 2, CORE: 33}), "core-percentage-step"),
    "power by another name": (
        "ack",
        job({MEM: 2, "aliyun.com/gpu-core.percent": 30}),
        "unknown-gpu-resource",
    ),
    "four cards of 15 GiB": ("ack", shared_node()),
    "300 percent of four cards": ("ack", shared_node(percent="300"), "node-share-totals"),
    "a mode with a dash": ("ack", shared_node("core-mem"), "unknown-node-mode"),
    "a plugin that stays": ("ack", device_plugin(priorityClassName=CRITICAL)),
    "a plugin that can be evicted": ("ack", device_plugin(), "device-plugin-priority"),
    "a plugin with a slip in its class": (
        "ack",
        device_plugin(priorityClassName="system-node-critcal"),
        "device-plugin-priority",
    ),
    "a share": ("ack-registered", job({MEM: 3}, **REGISTERED)),
    "a share with a unit": ("ack-registered", job({MEM: "3Gi"}, **REGISTERED), "gpu-mem-unit"),
    "a share of another scheduler": (
        "ack-registered",
        job({MEM: 3}, schedulerName="ack-co-schedular"),
        "scheduler-mismatch",
    ),
    "two cards": ("nvidia", pod({GPU: 2, "memory": "32Gi", "cpu": "8"})),
    "half a card": ("nvidia", pod({GPU: 0.5}), "fractional-gpu"),
    "a card beside limits": (
        "nvidia",
        pod({}, resources={GPU: 1, "limits": {"cpu": 8}}),
        "misplaced-gpu",
    ),
    "models by affinity": ("nvidia", affine()),
    "an operator in small letters": ("nvidia", affine(operator="in"), "invalid-placement"),
    "an operator that takes no values": (
        "nvidia",
        affine(operator="Exists"),
        "invalid-placement",
    ),
    "a toleration": ("nvidia", tolerant()),
    "a toleration of the plural": ("nvidia", tolerant(key=f"{GPU}s"), "toleration-mismatch"),
    "a toleration without its last letter": (
        "nvidia",
        tolerant(effect="NoSchedul"),
        "toleration-mismatch",
        "invalid-placement",
    ),
    "a quota": ("nvidia", quota(GPU, "8")),
    "a quota of the plural": ("nvidia", quota(f"{GPU}s", "8"), "unknown-quota-resource"),
    "a quota of eight and a half": ("nvidia", quota(GPU, "8.5"), "quota-fraction"),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_a_manifest_of_the_pages_is_clean_unless_it_is_mistyped(name: str) -> None:
    profile, manifest, *expected = REPLAYED[name]
    assert reported(manifest, rules(profile)) == expected
