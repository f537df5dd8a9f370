"""Tests that pods are found in every kind of workload. The table is `data/workloads.yaml`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.base.json_values import Json, Path, as_object, pointer, value_at
from rules.gpu.visibility import remove_edits
from rules.objects.kubernetes_objects import KubernetesObject, Quota
from rules.objects.pod import Pod
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_search import MAX_JSON_CHARACTERS, MalformedField
from tests.testkit.workload_table import PROFILE, WORKLOADS, manifest_of, parsed, pods_in


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pods_of_every_workload_are_found(name: str) -> None:
    manifest = manifest_of(name)
    found = {
        pointer(pod.path): {
            "metadata": pointer(pod.metadata_path),
            "containers": [f"{c.role} {pointer(c.path)}" for c in pod.containers],
        }
        for pod in pods_in(manifest)
    }
    assert found == WORKLOADS[name]["pods"]
    for pod in pods_in(manifest):
        assert pod.spec is value_at(manifest, pod.path)
        assert all(c.raw is value_at(manifest, c.path) for c in pod.containers)
        if pod.metadata:
            assert pod.metadata is value_at(manifest, pod.metadata_path)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pods_in_a_list_are_the_same_with_longer_paths(name: str) -> None:
    manifest = manifest_of(name)
    items = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Secret"}, manifest]}
    listed, alone = pods_in(items), pods_in(manifest)
    assert [pod.path for pod in listed] == [("items", 1, *pod.path) for pod in alone]
    assert [pod.stable_path for pod in listed] == [pod.stable_path for pod in alone]
    assert [pod.object for pod in listed] == [pod.object for pod in alone]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("{apiVersion: apps/v1, kind: Deployment, metadata: {labels: {a: b}}}", 0),
        ("{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2}}", 0),
        ("{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {nodeName: x}}}}", 1),
        ("{apiVersion: v1, kind: Pod, metadata: {name: x}}", 0),
        ("{apiVersion: v1, kind: Pod, spec: {containers: null}}", 1),
        ("{apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {}}", 0),
        ("{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {}}", 0),
        ("{apiVersion: example.com/v1, kind: X, spec: {template: {spec: {containers: []}}}}", 0),
        ("{kind: X, containers: [{name: a}]}", 1),
        ("{apiVersion: v1, spec: {containers: [{name: a}]}}", 0),
    ],
)
def test_a_partial_object_is_read(text: str, count: int) -> None:
    assert len(pods_in(parsed(text))) == count


PATTERNS = {
    "kyverno.io/v1": "ClusterPolicy",
    "policies.kyverno.io/v1alpha1": "ValidatingPolicy",
    "constraints.gatekeeper.sh/v1beta1": "K8sAllowedRepos",
    "mutations.gatekeeper.sh/v1": "Assign",
    "admissionregistration.k8s.io/v1": "MutatingAdmissionPolicy",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "policies.kubewarden.io/v1": "ClusterAdmissionPolicy",
    "policy.open-cluster-management.io/v1": "ConfigurationPolicy",
    "gpuward.io/v1": "Policy",
}


@pytest.mark.parametrize("version", PATTERNS)
def test_policy_patterns_are_not_evaluated(version: str) -> None:
    pattern = {"spec": {"containers": [{"env": "=(text)"}], "volumes": "X"}}
    manifest = {"apiVersion": version, "kind": PATTERNS[version], "spec": {"pattern": pattern}}
    assert list(find_subjects(manifest, PROFILE)) == []
    assert list(find_subjects({"kind": "List", "items": [manifest]}, PROFILE)) == []


@pytest.mark.parametrize(
    "text",
    [
        "{apiVersion: v1, kind: ConfigMap, data: {containers: [{}]}}",
        "{apiVersion: example.com/v1, kind: X, spec: {containers: 3}}",
        "{apiVersion: example.com/v1, kind: X, spec: {containers: [a, b]}}",
        "{apiVersion: example.com/v1, kind: X, spec: {containers: {a: {image: b}}}}",
        # A kind with this name in another group has its own schema.
        "{apiVersion: example.com/v1, kind: TrainJob, spec: {trainer: text}}",
        "{apiVersion: example.com/v1, kind: Workflow, spec: {templates: {a: b}}}",
    ],
)
def test_an_object_that_only_resembles_a_pod_is_no_subject(text: str) -> None:
    assert list(find_subjects(parsed(text), PROFILE)) == []


def test_pods_in_lists_are_found() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    bare = {"metadata": {"name": "x"}, "spec": {}}
    inner = {"kind": "List", "items": [pod]}
    found = pods_in({"kind": "List", "items": [None, 3, pod, inner, {"spec": {}}, pod]})
    assert [p.path[:-1] for p in found] == [("items", 2), ("items", 3, "items", 0), ("items", 5)]
    listed = {"apiVersion": "v1", "kind": "PodList", "items": [bare, {**bare, "kind": None}, pod]}
    assert [p.object.kind for p in pods_in(listed)] == ["Pod"] * 3
    assert pods_in({"kind": "PodList", "items": "text"}) == []
    jobs = {"apiVersion": "batch/v1", "kind": "JobList", "items": [{"spec": {"template": bare}}]}
    (job,) = pods_in(jobs)
    assert (job.object.kind, job.object.group) == ("Job", "batch")


@pytest.mark.parametrize(
    ("group", "kind", "path"),
    [
        ("", "Template", ("objects", 0)),
        ("template.openshift.io/", "Template", ("objects", 0)),
        ("work.open-cluster-management.io/", "ManifestWork", ("spec", "workload", "manifests", 0)),
        (
            "work.open-cluster-management.io/",
            "ManifestWorkReplicaSet",
            ("spec", "manifestWorkTemplate", "workload", "manifests", 0),
        ),
        ("kubernetes.crossplane.io/", "Object", ("spec", "forProvider", "manifest")),
        ("kubernetes.m.crossplane.io/", "Object", ("spec", "forProvider", "manifest")),
    ],
)
def test_objects_in_others_are_found_as_what_they_are(group: str, kind: str, path: Path) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": 1}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    held: Json = {"kind": "List", "items": [quota, pod]}
    for step in reversed(path):
        held = [held, 1] if isinstance(step, int) else {step: held}
    holder = {"apiVersion": f"{group}v1", "kind": kind, **as_object(held)}
    of_quota, of_pod = find_subjects(holder, PROFILE)
    assert isinstance(of_quota, Quota)
    assert of_quota.path == (*path, "items", 0, "spec", "hard")
    assert isinstance(of_pod, Pod)
    assert (of_pod.object.kind, of_pod.path) == ("Pod", (*path, "items", 1, "spec"))
    for nothing in ({}, {"objects": "text", "spec": 3}, {"objects": [1], "spec": {"workload": []}}):
        assert (
            list(find_subjects({**holder, "objects": None, "spec": None, **nothing}, PROFILE)) == []
        )


def test_an_object_is_named_by_group_kind_namespace_and_name() -> None:
    manifest = {**manifest_of("Volcano Job"), "metadata": {"name": "x", "namespace": "y"}}
    (pod,) = pods_in(manifest)
    assert pod.object == ("Job", "batch.volcano.sh", "y", "x")
    del manifest["metadata"]["namespace"]
    (pod,) = [p for p in find_subjects(manifest, PROFILE, "z") if isinstance(p, Pod)]
    assert pod.object.namespace == "z"


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("Pod", ["spec"]),
        ("CronJob", ["spec.jobTemplate.spec.template.spec"]),
        (
            "RayCluster",
            ["spec.headGroupSpec.template.spec", "spec.workerGroupSpecs.gpu.template.spec"],
        ),
        ("Volcano Job", ["spec.tasks.worker.template.spec"]),
        ("WorkflowTemplate", ["spec.templates.a"]),
        (
            "what nobody has heard of",
            ["spec.byName.one.podSpec", "spec.byNumber.*.*.template.spec"],
        ),
    ],
)
def test_a_stable_path_has_names_instead_of_indices(name: str, places: list[str]) -> None:
    assert [pod.stable_path for pod in pods_in(manifest_of(name))] == places


def test_stable_paths_stay_when_elements_are_reordered() -> None:
    manifest = manifest_of("Workflow")
    before = {pod.stable_path for pod in pods_in(manifest)}
    manifest["spec"]["templates"].reverse()
    assert {pod.stable_path for pod in pods_in(manifest)} == before


def test_resources_are_read_from_the_fields_of_the_kind() -> None:
    spark = manifest_of("SparkApplication")
    spark["spec"]["executor"]["sidecars"][0]["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    driver, executor, _ = pods_in(spark)
    assert driver.containers[0].limits == {"nvidia.com/gpu": 1}
    assert driver.labels == {"a": "b"}
    assert executor.containers[0].limits == {}
    assert executor.containers[2].limits == {"nvidia.com/gpu": 2}
    *_, trainer, _ = pods_in(manifest_of("TrainJob"))
    assert trainer.containers[0].limits == {"nvidia.com/gpu": 1}
    assert pointer(trainer.containers[0].resources_path) == "/spec/trainer/resourcesPerNode"


def test_a_spark_driver_ignores_the_resources_field() -> None:
    driver = {"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}}}
    head = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    (pod,) = pods_in({**head, "spec": {"driver": driver}})
    assert (pod.containers[0].limits, pod.containers[0].requests) == ({}, {})


def workflow(patch: Any) -> dict[str, Any]:
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
    return {**head, "spec": {"podSpecPatch": patch, "templates": [{"podSpecPatch": patch}]}}


def test_a_patch_of_pods_in_a_text_is_read() -> None:
    patch = json.dumps({"containers": [{"name": "main", "securityContext": {"privileged": True}}]})
    pods = pods_in(workflow(patch))
    assert [pod.containers[0].is_privileged for pod in pods] == [True, True]
    assert [pointer(pod.path) for pod in pods] == [
        "/spec/podSpecPatch",
        "/spec/templates/0/podSpecPatch",
    ]
    others: tuple[Any, ...] = (
        "{{inputs.parameters.patch}}",
        "",
        "[]",
        '{"a"',
        "[" * 10_000,
        {},
        None,
    )
    for other in others:
        assert pods_in(workflow(other)) == []
    largest = " " * (MAX_JSON_CHARACTERS - len(patch)) + patch
    assert len(pods_in(workflow(largest))) == 2
    assert [error.path[-1] for error in find_subjects(workflow(f" {largest}"), PROFILE)] == [
        "podSpecPatch",
        "podSpecPatch",
    ]


def test_a_map_of_variables_is_read_after_the_list() -> None:
    driver = {"env": [{"name": "A", "value": "1"}], "envVars": {"A": "2", "B": "3"}}
    head = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    (pod,) = pods_in({**head, "spec": {"driver": driver}})
    (container,) = pod.containers
    assert (container.env_value("A"), container.env_value("B")) == ("2", "3")
    assert [pointer(container.env_value_path(name)) for name in ("A", "B")] == [
        "/spec/driver/envVars/A",
        "/spec/driver/envVars/B",
    ]
    edits = {name: remove_edits(container, name) for name in ("A", "B")}
    assert [pointer(edit.path) for edit in edits["A"]] == [
        "/spec/driver/env/0",
        "/spec/driver/envVars/A",
    ]
    assert [pointer(edit.path) for edit in edits["B"]] == ["/spec/driver/envVars/B"]


def test_a_quota_is_a_subject() -> None:
    text = "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: {requests.nvidia.com/gpu: 1}}"
    (quota,) = find_subjects(parsed(text), PROFILE)
    assert isinstance(quota, Quota)
    assert quota.hard == {"requests.nvidia.com/gpu": 1}
    assert pointer(quota.path) == "/spec/hard"
    partial = next(find_subjects(parsed("{apiVersion: v1, kind: ResourceQuota}"), PROFILE))
    assert isinstance(partial, Quota)
    assert partial.hard == {}


def test_an_object_of_a_listed_kind_is_a_subject_as_a_whole() -> None:
    manifest = parsed("{apiVersion: v1, kind: Node, metadata: {labels: [x]}, status: {}}")
    error, node = find_subjects({"kind": "List", "items": [manifest]}, PROFILE)
    assert isinstance(error, MalformedField)
    assert pointer(error.path) == "/items/0/metadata/labels"
    assert isinstance(node, KubernetesObject)
    assert node.raw is manifest
    assert pointer(node.path) == "/items/0"


@pytest.mark.parametrize(
    ("name", "count"), [("kubelet-config", 1), ("kubelet-config-1.23", 1), ("x", 0)]
)
def test_of_some_kinds_only_objects_of_a_name_are_subjects(name: str, count: int) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    assert len(list(find_subjects(manifest, PROFILE))) == count


def test_a_workload_is_a_subject_beside_its_pod() -> None:
    manifest = manifest_of("CronJob")
    pod, workload = find_subjects(manifest, PROFILE)
    assert isinstance(workload, KubernetesObject)
    assert workload.pods == (pod,)
    assert workload.raw is manifest
