"""Tests of built-in kinds whose pod is not where it belongs: they are never green."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.testkit.lint_command import LintCommand

LIST = [{"name": "main", "image": "example.com/main:1"}]
VERSIONS = {"Pod": "v1", "Deployment": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1"}
DEPLOYED = "/spec/template/spec/containers"
# Kind, what the object has, where its containers are, where they belong.
MISPLACED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no spec": ("Pod", {"spec": None, "containers": LIST}, "/containers", "/spec/containers"),
    "empty spec": ("Pod", {"spec": {}, "containers": LIST}, "/containers", "/spec/containers"),
    "empty list": (
        "Pod",
        {"spec": {"containers": []}, "containers": LIST},
        "/containers",
        "/spec/containers",
    ),
    "below the metadata": (
        "Pod",
        {"metadata": {"name": "x", "spec": {"containers": LIST}}},
        "/metadata/spec/containers",
        "/spec/containers",
    ),
    "a Deployment like a Pod": (
        "Deployment",
        {"spec": {"containers": LIST}},
        "/spec/containers",
        DEPLOYED,
    ),
    "a template without spec": (
        "Job",
        {"spec": {"template": {"initContainers": LIST}}},
        "/spec/template/initContainers",
        "/spec/template/spec/initContainers",
    ),
    "a Pod like a Deployment": (
        "Pod",
        {"spec": {"template": {"spec": {"containers": LIST}}}},
        DEPLOYED,
        "/spec/containers",
    ),
    "a CronJob like a Job": (
        "CronJob",
        {"spec": {"template": {"spec": {"containers": LIST}}}},
        DEPLOYED,
        "/spec/jobTemplate/spec/template/spec/containers",
    ),
    "a misspelt list": (
        "Pod",
        {"spec": {"container": LIST}},
        "/spec/container",
        "/spec/containers",
    ),
    "one container that is no list": (
        "Deployment",
        {"spec": {"template": {"spec": {"Container": LIST[0]}}}},
        "/spec/template/spec/Container",
        DEPLOYED,
    ),
    "a misspelt list of another kind": (
        "Pod",
        {"spec": {"init-container": LIST}},
        "/spec/init-container",
        "/spec/initContainers",
    ),
}
PARTIAL: dict[str, dict[str, Any]] = {
    "labels": {"metadata": {"name": "x", "labels": {"a": "b"}}},
    "replicas": {"spec": {"replicas": 2}},
    "node selector": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    "empty list": {"spec": {}, "containers": []},
    "a map with a similar name": {"spec": {"container": {"enabled": True}}},
}


def manifest(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": {"name": "x"}, **fields}


@pytest.mark.parametrize("fault", MISPLACED)
def test_containers_elsewhere_are_not_evaluated(command: LintCommand, fault: str) -> None:
    kind, fields, place, right = MISPLACED[fault]
    done = command("-", stdin=json.dumps(manifest(kind, fields)))
    assert done.status == 3
    assert (
        f"{kind} x: {place} is not where a {kind} has containers: write them as {right}" in done.out
    )
    listed = {"apiVersion": "v1", "kind": "List", "items": [manifest(kind, fields)]}
    done = command("-", stdin=json.dumps(listed))
    assert done.status == 3
    assert f"{place} is not where" in done.out


def test_a_tutorial_without_indentation_is_not_evaluated(command: LintCommand) -> None:
    lines = ("apiVersion: v1", "kind: Pod", "metadata:", "name: x", "spec:", "containers:")
    command.write("pod.yaml", "\n".join((*lines, "- name: main", "  image: example.com/main:1")))
    done = command("pod.yaml")
    assert done.status == 3
    assert "not evaluated: pod.yaml:6:1: Pod: /containers is not where" in done.out


@pytest.mark.parametrize("part", PARTIAL)
def test_a_partial_object_is_fine(command: LintCommand, part: str) -> None:
    done = command("-", stdin=json.dumps(manifest("Deployment", PARTIAL[part])))
    assert done.status == 0
    assert "not evaluated" not in done.out


@pytest.mark.parametrize(
    ("kind", "version", "field", "value"),
    [
        ("ResourceQuota", "v1", "hard", {"requests.nvidia.com/gpu": "8"}),
        ("LimitRange", "v1", "limits", [{"type": "Container", "max": {"nvidia.com/gpu": 1}}]),
        ("ResourceClaim", "resource.k8s.io/v1", "devices", {"requests": [{"name": "gpu"}]}),
    ],
)
def test_a_field_beside_the_spec_is_not_evaluated(
    command: LintCommand, kind: str, version: str, field: str, value: Any
) -> None:
    """The API server takes the object without the field: a quota limits nothing."""
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
    done = command("-", stdin=json.dumps({**head, field: value}))
    assert done.status == 3
    assert f"{kind} x: /{field} is not where a {kind} has it: write it as /spec/{field}" in done.out
    done = command("-", stdin=json.dumps({**head, "spec": {field: value}}))
    assert "is not where" not in done.out


@pytest.mark.parametrize(("value", "count"), [("true", 1), ("false", 0)])
def test_a_pod_that_is_privileged_as_a_whole_is_named(
    command: LintCommand, value: str, count: int
) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ml}\nspec:\n"
        f"  securityContext:\n    privileged: {value}\n"
        "  containers: [{name: main, image: example.com/main:1}]\n"
    )
    command.write("pod.yaml", pod)
    remarks = command.json("pod.yaml").report["remarks"]
    assert [remark["line"] for remark in remarks] == [6] * count
    assert all("privileged is no field of a pod's own" in r["message"] for r in remarks)
