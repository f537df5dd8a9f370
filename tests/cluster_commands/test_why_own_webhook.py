"""`gpuward why --manifest` counts what gpuward's webhook changes in a pod, or refuses of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.snapshot.snapshot import Snapshot
from cluster.source.files import FileSource
from cluster.source.objects import VALIDATING, MissingRightError, Resource
from cluster.why.explainer import Explainer, Workload
from cluster.why.explanation import Answer
from policies.loading import default_policy
from tests.testkit.why_command import CAN, CANNOT, GPU, NOT_KNOWN, Asked, node, pod

POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
extends: [recommended]
profiles: [nvidia]
"""
TAINT = {"key": GPU, "effect": "NoSchedule"}


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def tainted(name: str = "a") -> dict[str, Any]:
    made = node(name)
    return {**made, "spec": {"taints": [TAINT]}}


def registered(mode: str = "deny") -> dict[str, Any]:
    service = {"namespace": "gpuward-system", "name": "gpuward"}
    selector = {"matchLabels": {"gpuward.io/mode": mode}}
    entry = {"name": f"{mode}.gpuward.io", "namespaceSelector": selector}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gpuward"},
        "webhooks": [{**entry, "clientConfig": {"service": service}}],
    }


def policy(text: str = POLICY) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuward-policy", "namespace": "gpuward-system"},
        "data": {"gpuward.yaml": text},
    }


def namespace(mode: str) -> dict[str, Any]:
    labels = {"gpuward.io/mode": mode}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}}


def test_a_toleration_that_the_webhook_adds_counts(why: Asked) -> None:
    known = [tainted(), registered(), policy(), namespace("deny")]
    status, out = why(*known, manifest=pod(limits={GPU: 1}))
    assert status == CAN
    assert "The webhook of gpuward changes its affinity and tolerations." in out


def test_it_counts_for_the_pods_of_a_workload_and_with_limits_of_the_namespace(why: Asked) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ml"},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "i"}]}}},
    }
    limits = {"type": "Container", "default": {GPU: "1"}, "defaultRequest": {GPU: "1"}}
    given = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "gpus", "namespace": "ml"},
        "spec": {"limits": [limits]},
    }
    known = [tainted(), registered(), policy(), namespace("deny")]
    assert why(*known, given, manifest=job)[0] == CAN
    assert why(tainted(), given, manifest=job)[0] == CANNOT


@pytest.mark.parametrize(
    ("registration", "mode"), [(registered("warn"), "warn"), (registered(), "off"), (None, "deny")]
)
def test_only_the_mode_deny_changes_pods(
    why: Asked, registration: dict[str, Any] | None, mode: str
) -> None:
    known = [tainted(), policy(), namespace(mode), *([registration] if registration else [])]
    status, out = why(*known, manifest=pod(limits={GPU: 1}))
    assert status == CANNOT
    assert "webhook" not in out


def test_a_pod_that_the_webhook_refuses_cannot_run(why: Asked) -> None:
    known = [node("a"), registered(), policy(), namespace("deny")]
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    bypass = [{"name": "m", "image": "i", "env": env}]
    status, out = why(*known, manifest=pod(containers=bypass))
    assert status == CANNOT
    assert "it is refused: gpuward [visible-devices-env]" in out.replace("It is", "it is")


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("policy", "its policy is not known"),
        ("namespace", "the labels of the namespace are not known"),
    ],
)
def test_an_unknown_policy_or_mode_makes_nothing_sure(why: Asked, left_out: str, said: str) -> None:
    known = {"policy": policy(), "namespace": namespace("deny")}
    known.pop(left_out)
    for one in (tainted(), node("a")):
        status, out = why(one, registered(), *known.values(), manifest=pod(limits={GPU: 1}))
        assert status == NOT_KNOWN
        assert f"what gpuward's webhook changes in it, or refuses: {said}" in out
        assert "By what is known here" in out


def test_a_right_that_is_missing_makes_nothing_sure(tmp_path: Path) -> None:
    class Limited(FileSource):
        def list(self, resource: Resource, namespace: str | None = None) -> Any:
            if resource == VALIDATING:
                raise MissingRightError(resource, None)
            return super().list(resource, namespace)

    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [tainted()]}))
    snapshot = Snapshot(Limited([str(file)], io.BytesIO()), default_policy().profile)
    found = Explainer(snapshot).explain_workload(Workload(pod(limits={GPU: 1}), 1))
    assert found.answer is Answer.NOT_KNOWN
    assert "whether one is registered is not known" in found.unchecked[-1]


def test_a_pod_that_is_there_was_changed_already(why: Asked) -> None:
    known = [tainted(), registered(), policy(), namespace("deny")]
    assert why(*known, pod(limits={GPU: 1}), name="p")[0] == CANNOT


def test_a_namespace_that_files_lack_is_not_one_without_labels(why: Asked) -> None:
    other = {**namespace("deny"), "metadata": {"name": "other"}}
    known = [node("a"), registered(), policy(), other]
    status, out = why(*known, manifest=pod(limits={GPU: 1}))
    assert status == NOT_KNOWN
    assert "the labels of the namespace are not known" in out
