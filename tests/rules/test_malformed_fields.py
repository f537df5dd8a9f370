"""Tests that malformed fields of a pod are reported, and that missing fields are not."""

from __future__ import annotations

from typing import Any

import pytest

from rules.base.json_values import value_at
from tests.testkit.workload_table import WORKLOADS, manifest_of, parsed, places, unreadable_in

POD = "apiVersion: v1\nkind: Pod\n"
ARGO = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n"
KSERVE = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
SPARK = "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\n"
TRAIN = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"
TEMPLATE = "apiVersion: example.com/v1\nkind: X\nspec: {template: {metadata: %s, spec: %s}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POD + "spec: text", "/spec should be an object and is text"),
        (POD + "spec: [{containers: []}]", "/spec should be an object and is a list"),
        (POD + "spec: 3", "/spec should be an object and is a number"),
        (POD + "spec: {containers: text}", "/spec/containers should be a list and is text"),
        (POD + "spec: {containers: {}}", "/spec/containers should be a list and is an object"),
        (POD + "spec: {containers: true}", "/spec/containers should be a list and is a boolean"),
        (POD + "spec: {containers: [a]}", "/spec/containers/0 should be an object and is text"),
        (POD + "spec: {initContainers: a}", "/spec/initContainers should be a list and is text"),
        (POD + "spec: {volumes: text}", "/spec/volumes should be a list and is text"),
        (POD + "spec: {volumes: [[]]}", "/spec/volumes/0 should be an object and is a list"),
        (POD + "spec: {tolerations: {}}", "/spec/tolerations should be a list and is an object"),
        (POD + "spec: {nodeSelector: a}", "/spec/nodeSelector should be an object and is text"),
        (POD + "spec: {affinity: []}", "/spec/affinity should be an object and is a list"),
        (
            POD + "spec: {containers: [{env: {A: b}}]}",
            "/spec/containers/0/env should be a list and is an object",
        ),
        (
            POD + "spec: {containers: [{env: [A=b]}]}",
            "/spec/containers/0/env/0 should be an object and is text",
        ),
        (
            POD + "spec: {containers: [{resources: [a]}]}",
            "/spec/containers/0/resources should be an object and is a list",
        ),
        (
            POD + "spec: {containers: [{resources: {limits: 1}}]}",
            "/spec/containers/0/resources/limits should be an object and is a number",
        ),
        (
            POD + "spec: {containers: [{securityContext: true}]}",
            "/spec/containers/0/securityContext should be an object and is a boolean",
        ),
        (
            POD + "metadata: {annotations: [a]}\nspec: {}",
            "/metadata/annotations should be an object and is a list",
        ),
        (POD + "metadata: text\nspec: {}", "/metadata should be an object and is text"),
        (
            "apiVersion: apps/v1\nkind: Deployment\nspec: {template: [{spec: {}}]}",
            "/spec/template should be an object and is a list",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nspec: {jobTemplate: text}",
            "/spec/jobTemplate should be an object and is text",
        ),
        (
            TEMPLATE % ("{}", "{containers: text}"),
            "/spec/template/spec/containers should be a list and is text",
        ),
        (
            TEMPLATE % ("{}", "{containers: [a]}"),
            "/spec/template/spec/containers/0 should be an object and is text",
        ),
        (
            TEMPLATE % ("{}", "{containers: [{env: {}}]}"),
            "/spec/template/spec/containers/0/env should be a list and is an object",
        ),
        (
            TEMPLATE % ("[]", "{containers: [{}]}"),
            "/spec/template/metadata should be an object and is a list",
        ),
        (
            "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: [a]}",
            "/spec/hard should be an object and is a list",
        ),
        ("apiVersion: v1\nkind: ResourceQuota\nspec: a", "/spec should be an object and is text"),
        (ARGO + "spec: {templates: {a: {}}}", "/spec/templates should be a list and is an object"),
        (ARGO + "spec: {templates: [a]}", "/spec/templates/0 should be an object and is text"),
        (
            ARGO + "spec: {templates: [{containerSet: {containers: {}}}]}",
            "/spec/templates/0/containerSet/containers should be a list and is an object",
        ),
        (KSERVE + "spec: text", "/spec should be an object and is text"),
        (
            KSERVE + "spec: {predictor: {model: [a]}}",
            "/spec/predictor/model should be an object and is a list",
        ),
        (
            SPARK + "spec: {driver: {gpu: 1}}",
            "/spec/driver/gpu should be an object and is a number",
        ),
        (
            SPARK + "spec: {driver: {annotations: []}}",
            "/spec/driver/annotations should be an object and is a list",
        ),
        (
            TRAIN + "spec: {trainer: {resourcesPerNode: {limits: []}}}",
            "/spec/trainer/resourcesPerNode/limits should be an object and is a list",
        ),
    ],
)
def test_a_malformed_field_is_reported_once_with_its_path(text: str, message: str) -> None:
    manifest = parsed(text)
    assert unreadable_in(manifest) == [message]
    assert unreadable_in({"kind": "List", "items": [manifest]}) == [message]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_partial_object_can_be_read(name: str) -> None:
    """A patch may be any part of an object, so every field may be missing or null."""
    for path in places(manifest_of(name)):
        if path not in {("kind",), ("apiVersion",)}:
            changed: Any = manifest_of(name)
            parent: Any = value_at(changed, path[:-1])
            parent[path[-1]] = None
            assert unreadable_in(changed) == []
            del parent[path[-1]]
            assert unreadable_in(changed) == []
