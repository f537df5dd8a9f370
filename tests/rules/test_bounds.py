"""Tests of the bounds on objects: what they count."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.bounds import (
    LARGE_OBJECT_BYTES,
    MAX_GPU_VARIABLES,
    MAX_VALUES,
    oversized_reason,
    steps_of,
)
from rules.engine.fixing import check
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import TODAY, inventory_of
from tests.testkit.workload_table import PROFILE


def steps(**spec: Any) -> int:
    """The steps that a rule takes for a pod of one container."""
    container = {"name": "main", "image": "example/x", **spec.pop("container", {})}
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container], **spec}}
    (subject,) = find_subjects(manifest, PROFILE, "home")
    assert isinstance(subject, Pod)
    return steps_of(subject)


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "x"}] * 40},
        {"volumes": [{"name": "x"}] * 40},
        {"container": {"volumeMounts": [{"name": "x"}] * 40}},
        {"container": {"envFrom": [{"prefix": "x"}] * 40}},
        {"container": {"env": [{"name": "x"}] * 320}},
        {"container": {"resources": {"limits": {f"example/{n}": 1 for n in range(40)}}}},
        {"container": {"resources": {"claims": [{"name": "x"}] * 40}}},
    ],
    ids=lambda spec: next(iter(spec.get("container", spec))),
)
def test_every_few_elements_of_a_list_take_a_step(spec: dict[str, Any]) -> None:
    assert steps(**spec) == steps() + 10


def test_every_container_takes_a_step() -> None:
    more = [{"name": f"more-{n}", "image": "example/x"} for n in range(10)]
    assert steps(initContainers=more) == steps() + 10


def test_of_a_workload_only_its_pods_take_steps() -> None:
    def of_deployment(**fields: Any) -> int:
        pod = {"containers": [{"name": "main", "image": "example/x"}]}
        spec = {"template": {"spec": pod}, **fields}
        manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
        found = find_subjects(manifest, PROFILE, "home")
        (workload,) = [each for each in found if isinstance(each, KubernetesObject)]
        return steps_of(workload)

    assert of_deployment() == steps() + 1
    assert of_deployment(selector={f"label-{n}": "x" for n in range(40)}) == of_deployment()


def test_the_values_of_an_object_without_pods_take_steps() -> None:
    def of_node(labels: int) -> int:
        metadata = {"name": "x", "labels": {f"example.com/{n}": "x" for n in range(labels)}}
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        (subject,) = find_subjects(manifest, PROFILE, "home")
        assert isinstance(subject, KubernetesObject)
        return steps_of(subject)

    assert of_node(40) == of_node(0) + 10


def test_the_longest_legal_key_is_evaluated_and_a_longer_one_is_not() -> None:
    def reason(key: str) -> str:
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {key: "x"}}}
        return oversized_reason(manifest, LARGE_OBJECT_BYTES + 1)

    assert not reason("d" * 253 + "/" + "n" * 63)
    assert "of 318 characters" in reason("d" * 253 + "/" + "n" * 64)


@pytest.mark.parametrize(
    "field",
    [
        *("name", "generateName", "namespace", "image", "prefix", "kind"),
        *("path", "mountPath", "subPath", "subPathExpr", "fieldPath"),
        *("nodeName", "schedulerName", "runtimeClassName", "serviceAccountName", "serviceAccount"),
        *("key", "operator", "effect", "topologyKey", "whenUnsatisfiable"),
    ],
)
def test_a_text_that_rules_read_has_a_limit(field: str) -> None:
    def reason(length: int) -> str:
        manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {field: "x" * length}}
        return oversized_reason(manifest, LARGE_OBJECT_BYTES + 1)

    assert not reason(4096)
    assert reason(4097) == f"its field {field} of 4,097 characters"


def test_a_field_that_is_not_counted_counts_as_nothing() -> None:
    def reason(containers: int) -> str:
        spec: dict[str, Any] = {"containers": [{"env": []}] * containers}
        manifest = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
        return oversized_reason(manifest, LARGE_OBJECT_BYTES + 1)

    assert not reason(MAX_VALUES - 4)  # the object has three fields, and its spec one
    assert reason(MAX_VALUES - 3) == "its more than 10,000 values"


def test_variables_about_gpus_have_a_limit() -> None:
    def reason(variables: int, name: str = "CUDA_") -> str:
        entries = [{"name": f"{name}{number}"} for number in range(variables)]
        containers = [{"env": entries[:100]}, {"env": entries[100:]}]
        manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
        return oversized_reason({**manifest, "status": {}}, LARGE_OBJECT_BYTES + 1)

    assert not reason(MAX_GPU_VARIABLES)
    assert reason(MAX_GPU_VARIABLES + 1) == "its more than 10,000 variables about GPUs"
    assert not reason(MAX_GPU_VARIABLES + 1, "V")


def test_the_levels_of_a_custom_resource_have_a_limit() -> None:
    def reason(levels: int) -> str:
        value: dict[str, Any] = {}
        for _ in range(levels):
            value = {"a": value}
        return oversized_reason({"apiVersion": "example.com/v1", "kind": "X", **value}, 100)

    assert not reason(100)
    assert reason(101) == "its more than 100 levels"


def test_a_long_name_of_a_variable_is_too_much() -> None:
    containers = [{"env": [{"name": "x" * 4097}]}]
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
    assert "of 4,097 characters" in oversized_reason(manifest, LARGE_OBJECT_BYTES + 1)


def test_many_drivers_have_one_finding_each() -> None:
    """Every two of them may select one node."""
    drivers = [
        {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "NVIDIADriver",
            "metadata": {"name": f"driver-{n}"},
            "spec": {"nodeSelector": {f"pool-{n}": "yes"}},
        }
        for n in range(150)
    ]
    policy = default_policy()
    rules = policy.rule_set().restricted_to(["overlapping-drivers"])
    context = Context(TODAY, inventory=inventory_of(drivers, policy.profile))

    found = [check(driver, rules, context).findings for driver in drivers]

    assert {len(findings) for findings in found} == {1}
