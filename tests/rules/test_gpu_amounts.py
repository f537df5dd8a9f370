"""Tests that the rules about GPU amounts agree with the API server, and which rule reports what.

The first table repeats the cases about extended resources in Kubernetes' `validation_test.go`,
the second one lists quantities; both run for containers and for init containers. At the end are
the examples from the vendors' documents on which the rules are based.
"""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import default_policy, load_policy
from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.gpu.claims import asks_for_any_gpu
from rules.inventory.inventory import EMPTY_INVENTORY
from rules.objects.kubernetes_objects import Quota
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import TODAY

GPU = "nvidia.com/gpu"
MEM, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
# The families under test; rules about variables, privileges and scheduling have other tests.
FAMILIES = frozenset({"requests", "quota", "sharing"})
# The GPUs of init containers are those of an application as well, which these pods leave out.
RULES_UNDER_TEST = [
    rule.name for rule in CATALOG if rule.family in FAMILIES and rule.name != "init-container-gpu"
]


def findings(manifest: dict[str, Any], profile: str = "nvidia") -> list[tuple[str, str]]:
    text = f"apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [{profile}]\n"
    rules = load_policy(text, "policy").rule_set().restricted_to(RULES_UNDER_TEST)
    result = check(manifest, rules, Context(today=TODAY))
    assert not result.failures
    return [(finding.rule, finding.action.name.lower()) for finding in result.findings]


def pod(resources: dict[str, Any], field: str = "containers", /, **spec: Any) -> dict[str, Any]:
    containers = {"containers": [{"name": "other", "image": "example.com/other:1"}], **spec}
    containers[field] = [{"name": "main", "image": "example.com/a:1", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": containers,
    }


def job(spec: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "sample"}}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sample", "namespace": "ml"},
        "spec": {"parallelism": 1, "template": template},
    }


def quota(hard: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "gpu-quota", "namespace": "ml-training"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
    }


# Resources of a container, and the rule that reports the refusal; None if the API server accepts.
VALIDATION = {
    "limit alone": ({"limits": {GPU: "10"}}, None),
    "limit and request": ({"limits": {GPU: "2"}, "requests": {GPU: "2"}}, None),
    "equal in another spelling": ({"limits": {GPU: "2"}, "requests": {GPU: "2000m"}}, None),
    "without a limit": ({"requests": {GPU: "2"}}, "request-only"),
    "request above limit": ({"limits": {GPU: "1"}, "requests": {GPU: "2"}}, "request-ne-limit"),
    "request below limit": ({"limits": {GPU: "2"}, "requests": {GPU: "1"}}, "request-ne-limit"),
    "fractional request": ({"requests": {GPU: "500m"}}, "fractional-gpu"),
    "fractional limit": ({"limits": {GPU: "5"}, "requests": {GPU: "2.5"}}, "fractional-gpu"),
    "fractions alike": ({"limits": {GPU: "2.5"}, "requests": {GPU: "2.5"}}, "fractional-gpu"),
    "negative limit": ({"limits": {GPU: "-1"}}, "fractional-gpu"),
    "no quantity": ({"limits": {GPU: "one"}}, "fractional-gpu"),
    "a name without a domain": ({"limits": {"gpu": "1"}}, "unknown-gpu-resource"),
    "a qualified name misspelt": ({"limits": {"nvidia.com/gpus": "1"}}, "unknown-gpu-resource"),
    "the prefix of a quota": ({"limits": {f"requests.{GPU}": "1"}}, "unknown-gpu-resource"),
    "a resource of somebody else": ({"limits": {"example.com/a": "1"}}, None),
}


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize("case", VALIDATION)
def test_the_findings_agree_with_the_api_server(case: str, field: str) -> None:
    resources, rule = VALIDATION[case]
    expected = [] if rule is None else [(rule, "deny")]
    assert findings(pod(resources, field)) == expected


def test_a_gpu_in_the_resources_of_the_pod_is_misplaced() -> None:
    manifest = pod({}, resources={"limits": {"cpu": "4", GPU: "1"}})
    assert findings(manifest) == [("misplaced-gpu", "warn")]


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_no_pattern_makes_a_known_gpu_in_a_wrong_place_another_device(name: str) -> None:
    patterns = ["nvidia.com/*"]
    (misplaced,) = find_subjects(pod({"limit": {name: 1}}), default_policy().profile)
    (other,) = find_subjects(pod({"limits": {"nvidia.com/a": 1}}), default_policy().profile)
    assert isinstance(misplaced, Pod)
    assert isinstance(other, Pod)
    assert asks_for_any_gpu(misplaced, EMPTY_INVENTORY, patterns)
    assert asks_for_any_gpu(other, EMPTY_INVENTORY)
    assert not asks_for_any_gpu(other, EMPTY_INVENTORY, patterns)


def test_a_gpu_in_an_ephemeral_container_is_misplaced() -> None:
    manifest = pod({"limits": {GPU: "1"}}, "ephemeralContainers")
    assert findings(manifest) == [("misplaced-gpu", "warn")]


WHOLE = ["1", "+1", "01", "1.", "2.0", "1000m", "1e0", "1E0", "1e+0", "10e-1", "100e-2"]
WHOLE += ["1000000u", "010", " 1", "1 "]
THOUSANDS = ["1k", "1Ki", "1M", "1e3", "0.5k", "0.5Ki", "1E", "8Ei", str(2**63)]
LET_THROUGH = ["0.9999", "0.9991", "999999u", "1.9995"]
FRACTIONS = ["0.5", "500m", ".5", "999m", "0.999", "1e-1", "0.0001", "1n", "1000001u", "1.0001Ki"]
NO_NUMBERS = ["1e", "1K", "1mi", "1_000", "0x1", "NaN", "", "\uff11"]
PLACEHOLDERS = ["$GPU_PER_NODE", "${N}", "$(N)", "{{ .Values.gpu }}"]


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (WHOLE, []),
        (THOUSANDS, [("absurd-count", "warn")]),
        (["-0", "-", "+", "0", "0m"], [("zero-gpu", "audit")]),
        (LET_THROUGH, [("fractional-gpu", "deny")]),
        (FRACTIONS, [("fractional-gpu", "deny")]),
        (["-1", "-0.5"], [("fractional-gpu", "deny")]),
        (NO_NUMBERS, [("fractional-gpu", "deny")]),
        (PLACEHOLDERS, [("placeholder-quantity", "audit")]),
    ],
    ids=["whole", "thousands", "zero", "let through", "fraction", "negative", "text", "later"],
)
def test_each_quantity_is_reported_by_one_rule(
    texts: list[str], expected: list[tuple[str, str]], field: str
) -> None:
    for text in texts:
        for resources in (
            {"limits": {GPU: text}},
            {"limits": {GPU: text}, "requests": {GPU: text}},
        ):
            assert findings(pod(resources, field)) == expected, text


@pytest.mark.parametrize("value", [True, False, [], [1], {}, {"a": 1}])
def test_values_of_other_types_are_no_quantities(value: Any) -> None:
    assert findings(pod({"limits": {GPU: value}})) == [("fractional-gpu", "deny")]


@pytest.mark.parametrize("value", [1, 1.0, 2, 16])
def test_numbers_are_quantities(value: Any) -> None:
    assert findings(pod({"limits": {GPU: value}})) == []


def test_the_message_says_that_the_api_server_lets_a_fraction_through() -> None:
    rules = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "policy").rule_set()
    manifest = pod({"limits": {GPU: "1.9995"}})
    [finding] = check(
        manifest, rules.restricted_to(["fractional-gpu"]), Context(today=TODAY)
    ).findings
    assert "lets through" in finding.message
    assert "acts as 2" in finding.message


# The documents: their correct examples are clean, and what they warn about is found.


def test_one_card_in_the_limits_is_clean() -> None:
    assert findings(pod({"limits": {GPU: 1}}), "ack") == []


def test_a_gpu_cannot_be_only_requested() -> None:
    assert findings(pod({"requests": {GPU: 1}}), "ack") == [("request-only", "deny")]


def test_a_job_with_memory_and_computing_power_of_a_shared_card() -> None:
    container = {
        "name": "cuda-sample",
        "image": "example.com/gpushare-sample:benchmark",
        "command": ["bash", "run.sh", "--num_batches=500000000", "--batch_size=8"],
        "resources": {"limits": {MEM: 2, CORE: 30}},
        "workingDir": "/root",
    }
    assert findings(job({"containers": [container], "restartPolicy": "Never"}), "ack") == []


@pytest.mark.parametrize("percentage", [1, 4, 33, 101, 105])
def test_computing_power_comes_in_steps_of_five(percentage: int) -> None:
    manifest = pod({"limits": {MEM: 2, CORE: percentage}})
    assert findings(manifest, "ack") == [("core-percentage-step", "deny")]


@pytest.mark.parametrize("percentage", range(5, 101, 5))
def test_every_step_of_computing_power_is_fine(percentage: int) -> None:
    assert findings(pod({"limits": {MEM: 2, CORE: percentage}}), "ack") == []


def test_a_job_with_shared_memory_alone_in_a_registered_cluster() -> None:
    container = {
        "name": "gpu-share-sample",
        "image": "example.com/gpushare-sample:tensorflow",
        "resources": {"limits": {MEM: 3}},
    }
    spec = {"schedulerName": "ack-co-scheduler", "containers": [container]}
    assert findings(job({**spec, "restartPolicy": "Never"}), "ack-registered") == []


def test_two_cards_for_training_beside_cpu_and_memory() -> None:
    assert findings(pod({"limits": {GPU: 2, "memory": "32Gi", "cpu": "8"}})) == []


def test_half_a_gpu_fails() -> None:
    assert findings(pod({"limits": {GPU: 0.5}})) == [("fractional-gpu", "deny")]


def test_a_quota_on_gpu_limits_never_counts() -> None:
    hard = {f"requests.{GPU}": "8", f"limits.{GPU}": "8"}
    assert findings(quota(hard)) == [("quota-inert-key", "warn")]


def test_a_pod_of_shares_gets_the_same_findings_under_every_profile() -> None:
    for profile in ("nvidia", "ack"):
        assert findings(pod({"limits": {MEM: 5.5}}), profile) == [("gpu-mem-fraction", "deny")]
        assert findings(pod({"limits": {MEM: "10G"}}), profile) == [("gpu-mem-unit", "deny")]
        assert findings(pod({"limits": {CORE: 30}}), profile) == [("core-without-mem", "deny")]


def test_rules_about_quotas_evaluate_quotas() -> None:
    assert {rule.name for rule in CATALOG if rule.subject is Quota} >= {
        "quota-inert-key",
        "quota-fraction",
    }
